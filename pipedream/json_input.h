// Reading a JSON file strictly: every key is known and given once, every value has its type, a message names
// the place. nlohmann-json takes seconds to compile: only the .cpp files that read JSON include this.
#pragma once

#include <string>

#include "common/input/json_node.h"
#include "pipedream/error.h"
#include "pipedream/schedule_file.h"

namespace sc::pipedream {

/// of(the value) of a file's text.
///   Errors  InputError (data) with line and column where the text is no JSON, out of bounds
///           (common/input/json_text.h), or repeats a key; with the value's name where `of` refuses it.
template <class Of>
auto of_text(const std::string& text, const std::string& where, const Of& of) {
  // A schedule of 600,000 actions: 64 stages, 2,000 micro-batches.
  constexpr JsonLimits kLimits{.bytes = kMostTextBytes, .memory = std::size_t{56} << 20U};
  return of_json<InputError>(text, kLimits, where, ExitCode::data,
                             "correct it: valid JSON, every key once, as pipedream/README.md shows it", of);
}

/// A number that may be missing.
inline double number_or(const JsonNode& node, const char* key, double otherwise) {
  return node.has(key) ? node[key].number(0) : otherwise;
}

}  // namespace sc::pipedream
