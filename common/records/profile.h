// Where the time of a step goes, beside what each part could take at best: what --profile finds and prints.
// No torch.
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

/// One kind of collective of this rank, likewise; from its start until all is there. It runs beside
/// operations.
struct ProfileCommRow {
  CommKind kind{};
  double milliseconds = 0;
  std::int64_t calls = 0;
  Bytes sent;
  double alone = 0;  // milliseconds of as many with nothing beside them; 0: not known
};

/// Bounds are measured on the same GPUs after the run: each matrix product as a plain one of its shape,
/// alone; what is bound by memory as a copy of its bytes; attention at the best rate of these products; sums
/// over ranks alone.
struct Profile {
  std::int64_t steps = 0;
  double step_milliseconds = 0,
         waited_milliseconds = 0;     // of a step; the part in which nothing but a collective was awaited
  std::vector<ProfileRow> rows = {};  // longest first
  std::vector<ProfileCommRow> communication = {};
  double product_rate = 0, memory_rate = 0;        // best product's FLOP/s, the copy's bytes/s; 0: not known
  std::optional<GpuSensors::Sample> sensors = {};  // medians over the steps
};

/// Tables of it, a step's mean, and the clock and power of the steps.
std::string format_profile(const Profile& profile);

}  // namespace sc
