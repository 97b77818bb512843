// What users of PyTorch, DeepSpeed, Hugging Face and nanoGPT type, and what it is called here.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace sc {

/// The fix for a flag or a key of those programs ("--batch-size", "zero_optimization.stage"): what to use.
/// Empty: none of theirs.
std::string ours_for(std::string_view name);
/// The fix for a key that this program had once. Empty: no such key.
std::string newer_for(std::string_view key);
/// A workload as a record or a checkpoint has it, by key: where it was written with such a key, the one of
/// today in its place, of the same meaning.
std::map<std::string, std::string> in_todays_keys(std::map<std::string, std::string> workload);
/// The fix for a strategy's key in a lesson that does not have it, although others do. Empty: no such key.
std::string instead_of(std::string_view key);

}  // namespace sc
