// Strict reading of JSON files: every key is known and given once, every value has its type, and messages
// name the place. nlohmann-json takes seconds to compile, so only .cpp files that read JSON include this
// header.
#pragma once

#include <string>

#include "common/input/json_node.h"
#include "pipedream/error.h"
#include "pipedream/schedule_file.h"

namespace sc::pipedream {

/// Parses a file's text and returns of(its value).
///   Errors  InputError (data) with line and column if the text is not JSON, is out of bounds
///           (common/input/json_text.h), or repeats a key; with the value's name if `of` refuses it.
template <class Of>
auto of_text(const std::string& text, const std::string& where, const Of& of) {
  // Enough for a schedule of 600,000 actions: 64 stages, 2,000 micro-batches.
  constexpr JsonLimits kLimits{.bytes = kMostTextBytes, .memory = std::size_t{56} << 20U};
  return of_json<InputError>(text, kLimits, where, ExitCode::data,
                             "correct it: valid JSON, every key once, as pipedream/README.md shows it", of);
}

/// A number that may be missing.
inline double number_or(const JsonNode& node, const char* key, double otherwise) {
  return node.has(key) ? node[key].number(0) : otherwise;
}

}  // namespace sc::pipedream
