// The message for an unknown flag.
#pragma once

#include <string>
#include <vector>

namespace sc {

/// Refuses an unknown flag such as "--forma=x" and suggests the known one with the nearest spelling.
///   flags   the known flags, with their dashes
///   Errors  InputError (exit 64)
[[noreturn]] void refuse_flag(const std::string& word, const std::vector<std::string>& flags,
                              const std::string& fix);

}  // namespace sc
