// Command lines, taken apart by cxxopts.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace sc {

/// A flag as it was given: "steps", "5". The value of a switch is "true".
struct Given {
  std::string name, value;
  [[nodiscard]] std::string where() const { return "--" + name + " " + value; }
};
struct CommandWords {
  std::vector<Given> flags;        // in their order
  std::vector<std::string> words;  // that belong to no flag, and flags that are unknown
};

/// flags: names without dashes, and whether it is a switch, which takes no argument.
///   Errors  InputError (exit 64) with `fix`: an argument that is missing, for instance.
CommandWords command_words(int argc, const char* const* argv,
                           const std::vector<std::pair<std::string, bool>>& flags, const std::string& fix);

}  // namespace sc
