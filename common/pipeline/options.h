// The settings of a pipeline stage, shared by lessons.
#pragma once

#include <string>

#include "common/config/field_table.h"

namespace sc {

struct StageOptions {
  std::string split, profile_in, costs, pace;
  double link_ms = 0;
};

/// Copies the stage's settings from a lesson's options, which have members of the same names.
template <class Options>
StageOptions stage_options(const Options& o) {
  return {o.split, o.profile_in, o.costs, o.pace, o.link_ms};
}

/// Adds the keys of a stage. `of_each` names what `split` lists the blocks of: "position", or "stage" if that
/// is the same.
template <class Options>
void add_stage_fields(FieldTable<Options>& table, const std::string& of_each) {
  table.add(
      {"split", "",
       "blocks of each " + of_each + ": balanced (by operations, the head's counted), uniform, or 7,7,7,3"},
      text(), &Options::split);
  table.add(
      {"profile_in", "", "a file with pipedream's profile of the layers, for a balanced split; or none"},
      text(), &Options::profile_in);
  table.add({"costs", "", "a file with pipedream's costs, in seconds: predicts a step's time; or none"},
            text(), &Options::costs);
  table.add({"pace", "", "a file with pipedream's costs, in seconds: every action takes that long; or none"},
            text(), &Options::pace);
  table.add({"link_ms", "ms", "every message arrives so much later"}, real({.low = 0, .high = 60'000}),
            &Options::link_ms);
}

}  // namespace sc
