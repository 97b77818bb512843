// What no single field can know: whether the values of a workload fit together. No torch.
#pragma once

#include <cstdint>

#include "common/config/batch_plan.h"
#include "common/config/resolve.h"

namespace sc {

enum class DeviceChoice : std::uint8_t { automatic, cpu, cuda };

/// What a run adds to its configuration.
struct RunFacts {
  Mesh mesh = {};                           // of the ranks that share a step's rows, virtual ones too
  DeviceChoice device = DeviceChoice::cpu;  // decided: `automatic` skips what depends on it
  bool plan_only = false;                   // --plan: nothing is trained
  std::string ranks_flag = "-n";            // what changes their number
};

/// Checks everything before anything is allocated and returns the step's arithmetic.
///   Errors  InputError(usage): what does not fit, the place that supplied the value, a setting that mends
///           it.
BatchPlan validate(const ResolvedConfig& config, const RunFacts& facts);

/// The device a plan is made for when none was asked for: 16-bit training is a GPU's.
DeviceChoice plan_device(const Workload& workload, DeviceChoice asked);

/// Tokens that a tokenizer can produce: byte 257, gpt2 50257.
std::int64_t tokenizer_vocab(const std::string& tokenizer);

}  // namespace sc
