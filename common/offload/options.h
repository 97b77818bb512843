// The settings that lessons 05 and 06 share.
#pragma once

#include <cstdint>

#include "common/config/field_table.h"

namespace sc {

/// Where parameters are on the device: whole on every rank, or in the slices of lesson 04.
enum class ParametersOn { whole, sharded };
/// When the host updates. exact: forward waits for the update before it. early: the same, but the update
/// begins before the norm is known, and the old states are kept until it is. delayed: forward continues with
/// parameters one update behind, while the host computes.
enum class UpdateKind { exact, early, delayed };

struct HostOptions {
  ParametersOn parameters = ParametersOn::whole;
  UpdateKind update = UpdateKind::exact;
  std::int64_t warm_steps = 2;     // delayed: the first steps, which are exact
  std::int64_t resident = 0;       // units, in forward's order, whose states stay on the device
  std::int64_t piece = 4'000'000;  // elements that are copied and updated together
  std::int64_t prefetch = 1;       // units whose gather is issued ahead of the one that computes
  std::int64_t adam_threads = 0;   // a rank's threads for AdamW; 0: its share of the cores, less one
  double link_mbps = 0;            // limit of copies between device and host; 0: none
};

/// Adds the keys that both lessons have: when updates happen, and the properties of host and link. `early`
/// says whether update=early is possible, which needs room for a second copy of states.
template <class Options>
void add_update_fields(FieldTable<Options>& table, bool early) {
  table.add({"parameters", "",
             "on the device: all of them on every rank, or slices that are gathered unit by unit"},
            choice<ParametersOn>({{"whole", ParametersOn::whole}, {"sharded", ParametersOn::sharded}}),
            &Options::parameters);
  const std::string known =
      early ? "; early: which begins before the norm is known, and again if that clips; delayed:"
            : "; delayed:";
  std::vector<std::pair<std::string, UpdateKind>> kinds = {
      {"exact", UpdateKind::exact}, {"delayed", UpdateKind::delayed}, {"early", UpdateKind::early}};
  if (!early) kinds.pop_back();
  table.add(
      {"update", "", "forward waits for the update before it" + known + " or computes one update behind"},
      choice<UpdateKind>(kinds), &Options::update);
  table.add({"warm_steps", "steps", "delayed: so many steps are exact first"}, integer(0),
            &Options::warm_steps);
  table.add({"resident", "units",
             "so many, in forward's order, keep their states on the device, which updates them"},
            integer(0), &Options::resident);
}
template <class Options>
void add_host_fields(FieldTable<Options>& table) {
  table.add({"adam_threads", "threads", "a rank's for AdamW; 0: its share of the cores, less one"},
            integer(0, 1024), &Options::adam_threads);
  table.add({"link_mbps", "MB/s", "copies between device and host are no faster, on the CPU; 0: no limit"},
            real({.low = 0}), &Options::link_mbps);
}

}  // namespace sc
