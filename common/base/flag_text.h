// Command lines that cxxopts reads: what it cannot say in one clear line.
#pragma once

#include <string>
#include <vector>

namespace sc {

/// cxxopts quotes with characters that are not ASCII: with those that are.
std::string ascii_quotes(std::string text);
/// Refuses a word such as "--forma=x" that is none of the flags, with the one that is near.
///   flags  with their dashes
///   Errors  InputError (exit 64)
[[noreturn]] void refuse_flag(const std::string& word, const std::vector<std::string>& flags,
                              const std::string& fix);

}  // namespace sc
