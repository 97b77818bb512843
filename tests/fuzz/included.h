// The includes of all fuzzed sources, for one precompiled header (CMakeLists.txt).
#pragma once

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

// These templates are compiled here once, because this uses them.
inline void use_json(const std::string& text) {
  (void)nlohmann::json::parse(text).dump();
  (void)nlohmann::ordered_json::parse(text).dump();
}
