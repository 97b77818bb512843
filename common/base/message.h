// What a program says before it ends. No torch.
#pragma once

#include <functional>
#include <string>

namespace sc {

/// "error: <text>", as a terminal may show it (shown_message), and a line end on stderr, in one write:
/// several ranks write to one place, and nothing that another one says comes between the lines of a message.
void say_error(const std::string& text) noexcept;

/// What a program's main returns: `run`'s code, or that of the InputError that it threw, which is said; of
/// any other exception `otherwise`.
int exit_code_of(const std::function<int()>& run, int otherwise) noexcept;

}  // namespace sc
