// Errors that a user of pipedream can act on.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "common/input/printable.h"

namespace sc::pipedream {

/// Exit codes of the command, the same numbers as in every program of the project.
enum class ExitCode : int {
  ok = 0,
  usage = 64,         // the command line
  data = 65,          // a file, or a schedule that breaks a rule
  cannot_write = 73,  // the output
};

/// Bad input: what is wrong, where, and how to fix it. Printed as "error: <where>: <what>", then "  fix:
/// <fix>".
class InputError : public std::runtime_error {
 public:
  InputError(ExitCode code, std::string_view where, std::string_view what, std::string_view fix)
      : std::runtime_error(shown_message(std::string(where) + ": " + std::string(what))),
        code_(code),
        fix_(shown_message(fix)) {}
  [[nodiscard]] ExitCode code() const { return code_; }
  [[nodiscard]] const std::string& fix() const { return fix_; }

 private:
  ExitCode code_;
  std::string fix_;
};

}  // namespace sc::pipedream
