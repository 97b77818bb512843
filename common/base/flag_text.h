// What is said of a flag that nobody knows.
#pragma once

#include <string>
#include <vector>

namespace sc {

/// Refuses a word such as "--forma=x" that is none of the flags, with the one that is near.
///   flags  with their dashes
///   Errors  InputError (exit 64)
[[noreturn]] void refuse_flag(const std::string& word, const std::vector<std::string>& flags,
                              const std::string& fix);

}  // namespace sc
