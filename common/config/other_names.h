// Names that users of PyTorch, DeepSpeed, Hugging Face and nanoGPT type, mapped to ours.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace sc {

/// The fix for a flag or key of those programs ("--batch-size", "zero_optimization.stage"). Empty if it is
/// none of theirs.
std::string ours_for(std::string_view name);
/// The fix for a key that Stagecraft had in an older version. Empty if there was no such key.
std::string newer_for(std::string_view key);
/// Replaces older keys in the workload of a record or a checkpoint by today's keys of the same meaning.
std::map<std::string, std::string> in_todays_keys(std::map<std::string, std::string> workload);
/// The fix for a strategy's key that other lessons have, but not this one. Empty if no lesson has it.
std::string instead_of(std::string_view key);

}  // namespace sc
