// Splits command lines by cxxopts.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace sc {

/// A flag as the user gave it, for example {"steps", "5"}. A switch has the value "true".
struct Given {
  std::string name, value;
  [[nodiscard]] std::string where() const { return "--" + name + " " + value; }
};
struct CommandWords {
  std::vector<Given> flags;        // in the order of the command line
  std::vector<std::string> words;  // words that belong to no flag, and unknown flags
};

/// Splits a command line. Each of `flags` is a name without dashes, and whether it is a switch (no argument).
///   Errors  InputError (exit 64) with `fix`, for example if a flag's argument is missing.
CommandWords command_words(int argc, const char* const* argv,
                           const std::vector<std::pair<std::string, bool>>& flags, const std::string& fix);

}  // namespace sc
