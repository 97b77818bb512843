// Checks that the values of a workload fit together, which no single field can know. No torch.
#pragma once

#include <cstdint>

#include "common/config/batch_plan.h"
#include "common/config/resolve.h"

namespace sc {

enum class DeviceChoice : std::uint8_t { automatic, cpu, cuda };

/// Facts of a run that its configuration does not contain.
struct RunFacts {
  Mesh mesh = {};                           // the ranks that share a step's rows, virtual ranks included
  DeviceChoice device = DeviceChoice::cpu;  // `automatic` skips the checks that depend on the device
  bool plan_only = false;                   // --plan: nothing is trained
  std::string ranks_flag = "-n";            // the flag that changes the number of ranks
};

/// Checks a configuration before anything is allocated, and returns the batch plan of its steps.
///   Errors  InputError(usage): what does not fit, where the value came from, and a setting that fixes it.
BatchPlan validate(const ResolvedConfig& config, const RunFacts& facts);

/// The device that --plan assumes without --device: a GPU for 16-bit training, otherwise the CPU.
DeviceChoice plan_device(const Workload& workload, DeviceChoice asked);

/// The number of different tokens that a tokenizer makes: byte 257, gpt2 50257.
std::int64_t tokenizer_vocab(const std::string& tokenizer);

}  // namespace sc
