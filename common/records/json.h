// JSON as records, pages, plans and traces write it. nlohmann-json takes seconds to compile: only .cpp files
// include this.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "common/watch/comm_op.h"

namespace sc {

/// Keys stay in the order in which they were set.
using Json = nlohmann::ordered_json;

/// On one line. Text in a record may come from a shell: bytes that are not UTF-8 become U+FFFD instead of an
/// exception.
inline std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// [{kind, dtype, elements, count, ranks, stride, purpose, unit}]: `ranks` only where it is not all `world`,
/// `stride` where it is not 1, `purpose` and `unit` where the operation has them.
Json json_of(const CommPlan& plan, int world);

}  // namespace sc
