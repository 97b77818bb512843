// Where the time of a step goes, and the least that each part could take: what --profile prints. No torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/records/gpu_sensors.h"
#include "common/watch/comm_op.h"

namespace sc {

/// One class of operations, summed over the profiled steps.
struct ProfileRow {
  std::string op;
  double milliseconds = 0, flops = 0, bytes = 0;
  std::int64_t calls = 0;
  double alone = 0;  // milliseconds of the same calls at their bound; 0: not known
};

/// One kind of this rank's collectives, summed over the profiled steps, each from its start until all data
/// have arrived. Collectives run at the same time as operations.
struct ProfileCommRow {
  CommKind kind{};
  double milliseconds = 0;
  std::int64_t calls = 0;
  Bytes sent;
  double alone = 0;  // milliseconds of the same collectives with nothing else running; 0: not known
};

/// The profile of a run. Bounds are measured on the same GPUs after it: each matrix product as a plain
/// product of its shape, alone; memory-bound operations as a copy of their bytes; attention at the best rate
/// of these products; sums over ranks alone.
struct Profile {
  std::int64_t steps = 0;
  double step_milliseconds = 0,
         waited_milliseconds = 0;     // per step: time in which nothing but a collective was awaited
  std::vector<ProfileRow> rows = {};  // longest first
  std::vector<ProfileCommRow> communication = {};
  double product_rate = 0, memory_rate = 0;  // FLOP/s of the best product, bytes/s of the copy; 0: not known
  std::optional<GpuSensors::Sample> sensors = {};  // medians over the steps
};

/// Tables of a mean step, and the clock and power during the steps.
std::string format_profile(const Profile& profile);

}  // namespace sc
