// Parses untrusted JSON. Only .cpp files include this: nlohmann-json takes seconds to compile.
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

/// The parser's error message without its prefix, its position and quotations from the file.
std::string json_words(std::string message);

}  // namespace sc
