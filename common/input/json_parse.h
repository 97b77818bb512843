// JSON from elsewhere as values. nlohmann-json takes seconds to compile: only .cpp files that read JSON
// include this.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "common/input/json_text.h"

namespace sc {

/// The value that `text` is, all of it.
///   Errors  JsonError: out of bounds (json_text.h), no JSON, something behind it, a key twice in one object,
///           a number that no double holds.
nlohmann::json parse_json(std::string_view text, const JsonLimits& limits);

/// The parser's own words for an error, without its prefix, its place and the bytes of the file.
std::string json_words(std::string message);

}  // namespace sc
