// What a program prints before it ends. No torch.
#pragma once

#include <functional>
#include <string>

namespace sc {

/// Writes "error: <text>" and a line end to stderr, with control characters made visible (shown_message). One
/// write call, because several ranks share stderr: a message stays in one piece.
void say_error(const std::string& text) noexcept;

/// Turns exceptions into main's exit code: `run`'s own code, an InputError's code, or `otherwise` for any
/// other exception. Prints the exception's message.
int exit_code_of(const std::function<int()>& run, int otherwise) noexcept;

}  // namespace sc
