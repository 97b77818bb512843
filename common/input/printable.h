// Makes text from files, command lines and the environment safe for a terminal. The standard library alone.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sc {

/// `text` with all that could steer a terminal written as "\x1b" and the like: control bytes, C1 controls,
/// marks that turn the direction of writing, bytes that are not UTF-8. Line breaks and tabs stay, because a
/// message may have several lines.
std::string printable(std::string_view text);

/// A name or value in a message: printable, on one line, cut after some `most` bytes, its length added.
inline constexpr std::size_t kMostShown = 80;
std::string shown(std::string_view text, std::size_t most = kMostShown);

/// A whole message, printable. One longer than a screen loses its middle.
std::string shown_message(std::string_view text);

}  // namespace sc
