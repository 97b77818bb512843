// Parses untrusted JSON. nlohmann-json takes seconds to compile, so only .cpp files that read JSON include
// this header.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "common/input/json_text.h"

namespace sc {

/// Parses the whole of `text`.
///   Errors  JsonError: out of bounds (json_text.h), not JSON, trailing text, a duplicate key in an object, a
///           number too large for a double.
nlohmann::json parse_json(std::string_view text, const JsonLimits& limits);

/// The parser's error message without its prefix, its position and the file's bytes.
std::string json_words(std::string message);

}  // namespace sc
