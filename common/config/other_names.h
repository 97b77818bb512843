// Names that users of PyTorch, DeepSpeed, Hugging Face and nanoGPT type, mapped to ours.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace sc {

/// Our name for another program's flag or key ("zero_optimization.stage"), as a fix; empty for others.
std::string ours_for(std::string_view name);
/// How to say today what a key of an older Stagecraft said. Empty for other names.
std::string newer_for(std::string_view key);
/// Replaces older keys in the workload of a record or a checkpoint by today's keys of the same meaning.
std::map<std::string, std::string> in_todays_keys(std::map<std::string, std::string> workload);
/// What to use instead of a strategy key that only other lessons have. Empty if no lesson has it.
std::string instead_of(std::string_view key);

}  // namespace sc
