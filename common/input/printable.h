// Text from files, command lines and the environment as a terminal may show it. The standard library alone.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sc {

/// `text` with everything that could steer a terminal as "\x1b": control bytes, C1 controls, marks that turn
/// the direction of writing, bytes that are not UTF-8. Line breaks and tabs stay: a message may have several
/// lines.
std::string printable(std::string_view text);

/// A name or a value for a message: printable, without line breaks, and of at most about `most` bytes: of a
/// longer one its begin, and how long it is.
inline constexpr std::size_t kMostShown = 80;
std::string shown(std::string_view text, std::size_t most = kMostShown);

/// A whole message, printable: the middle of one that is longer than a screen is left out.
std::string shown_message(std::string_view text);

}  // namespace sc
