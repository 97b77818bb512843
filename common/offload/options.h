// The settings that lessons 05 and 06 share.
#pragma once

#include <cstdint>

namespace sc {

/// Parameters on the device: all of them on every rank, or lesson 04's slices.
enum class ParametersOn { whole, sharded };
/// exact: forward waits for the update before it. delayed: it runs on, one update behind, while the host
/// computes.
enum class UpdateKind { exact, delayed };

struct HostOptions {
  ParametersOn parameters = ParametersOn::whole;
  UpdateKind update = UpdateKind::exact;
  std::int64_t warm_steps = 2;     // delayed: the first steps, which are exact
  std::int64_t piece = 4'000'000;  // elements that are copied and updated at a time
  std::int64_t prefetch = 1;       // units whose gather is issued ahead of the one that computes
  std::int64_t adam_threads = 0;   // a rank's threads for AdamW; 0: its share of the cores, less one
  double link_mbps = 0;            // copies between device and host are no faster; 0: no limit
};

}  // namespace sc
