// One line of the comparison of schedules; the figures use it too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "pipedream/generate.h"
#include "pipedream/simulate.h"

namespace sc::pipedream {

struct Comparison {
  std::string name;
  int stages = 0, microbatches = 0;
  double makespan = 0, utilization = 0;
  std::optional<double> steady_idle;  // of the worst stage
  double activations = 0;             // microbatches in flight on the worst stage
  double activation_bytes = 0, weight_bytes = 0;
  int versions = 0;  // on the worst stage
  std::int64_t messages = 0, steps = 0;
};

Comparison compare(const GenerateOptions& options, const Costs& costs);

}  // namespace sc::pipedream
