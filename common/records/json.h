// JSON as records, pages, plans and traces write it. nlohmann-json takes seconds to compile, so only .cpp
// files include this header.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "common/watch/comm_op.h"

namespace sc {

/// JSON that keeps keys in the order in which they were set.
using Json = nlohmann::ordered_json;

/// JSON on one line. Bytes that are not UTF-8 become U+FFFD instead of an exception, because a record's text
/// may come from a shell.
inline std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// A plan's operations as [{kind, dtype, elements, count, ranks, stride, purpose, unit}], without `ranks`
/// equal to `world`, `stride` 1, and a `purpose` and `unit` that the operation does not have.
Json json_of(const CommPlan& plan, int world);

}  // namespace sc
