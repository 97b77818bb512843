// Reading a JSON file strictly: every key is known and given once, every value has its type, a message names
// the place. nlohmann-json takes seconds to compile: only the .cpp files that read JSON include this.
#pragma once

#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "pipedream/error.h"

namespace sc::pipedream {

/// Throws InputError (data) with line and column where the text is no JSON, out of bounds
/// (common/input/json_text.h), or repeats a key.
nlohmann::json parse_json(const std::string& text, const std::string& where);

/// A JSON object of which every key must be asked for before finish().
class JsonObject {
 public:
  JsonObject(const nlohmann::json& json, std::string where);

  [[nodiscard]] const std::string& where() const { return where_; }
  [[nodiscard]] bool has(const char* key) const { return json_.contains(key); }
  /// The value of a required key.
  const nlohmann::json& value(const char* key);
  const nlohmann::json& array(const char* key);
  std::string text(const char* key);
  int integer(const char* key);
  /// At least `least`, finite.
  double number(const char* key, double least = 0);
  double number_or(const char* key, double otherwise);
  bool flag_or(const char* key, bool otherwise);
  /// Throws if there is a key that nobody asked for.
  void finish() const;

 private:
  [[noreturn]] void refuse(const char* key, const std::string& what, const std::string& fix) const;

  const nlohmann::json& json_;
  std::string where_;
  std::set<std::string> asked_;
};

}  // namespace sc::pipedream
