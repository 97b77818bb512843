// What a program says before it ends. No torch.
#pragma once

#include <string>

namespace sc {

/// "error: <text>", as a terminal may show it (shown_message), and a line end on stderr, in one write:
/// several ranks write to one place, and nothing that another one says comes between the lines of a message.
void say_error(const std::string& text) noexcept;

}  // namespace sc
