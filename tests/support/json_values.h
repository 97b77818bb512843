// Expected values at chosen places of a JSON document.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace sc::test {

/// A place as a JSON pointer, e.g. "/ranks/1/cores", and the value expected there.
struct JsonValue {
  std::string at;
  nlohmann::json expected;
};

inline void expect_values(const nlohmann::json& document, const std::vector<JsonValue>& values) {
  for (const auto& [at, expected] : values)
    EXPECT_EQ(document.at(nlohmann::json::json_pointer(at)), expected) << at;
}

}  // namespace sc::test
