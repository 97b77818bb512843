// Strict reading of JSON files: every key is known and given once, every value has its type, and messages
// name the place. Only .cpp files include this header: nlohmann-json takes seconds to compile.
#pragma once

#include <string>

#include "common/input/json_node.h"
#include "pipedream/error.h"
#include "pipedream/schedule_file.h"

namespace sc::pipedream {

/// Parses a file's text and returns what `of` makes of it.
///   Errors  InputError (data) with line and column if the text is not JSON, is out of bounds
///           (common/input/json_text.h), or repeats a key; with the value's name if `of` refuses it.
template <class Of>
auto of_text(const std::string& text, const std::string& where, const Of& of) {
  // These bounds are enough for a schedule of 600,000 actions: 64 stages, 2,000 micro-batches.
  constexpr JsonLimits kLimits{.bytes = kMostTextBytes, .memory = std::size_t{56} << 20U};
  return of_json<InputError>(text, kLimits, where, ExitCode::data,
                             "correct it: valid JSON, every key once, as pipedream/README.md shows it", of);
}

/// The number under a key, or `otherwise` if it is missing.
inline double number_or(const JsonNode& node, const char* key, double otherwise) {
  return node.has(key) ? node[key].number(0) : otherwise;
}

}  // namespace sc::pipedream
