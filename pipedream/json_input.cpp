#include "pipedream/json_input.h"

#include <cmath>

#include "common/input/json_parse.h"
#include "common/input/printable.h"
#include "pipedream/schedule_file.h"

namespace sc::pipedream {

using nlohmann::json;

json parse_json(const std::string& text, const std::string& where) {
  // A schedule of 600,000 actions: 64 stages, 2,000 micro-batches.
  constexpr JsonLimits kLimits{.bytes = kMostTextBytes, .memory = std::size_t{56} << 20U};
  try {
    return sc::parse_json(text, kLimits);
  } catch (const JsonError& error) {
    throw InputError(ExitCode::data,
                     where + ":" + std::to_string(error.line()) + ":" + std::to_string(error.column()),
                     error.what(), "write valid JSON, every key once");
  }
}

JsonObject::JsonObject(const json& json, std::string where) : json_(json), where_(std::move(where)) {
  if (!json_.is_object())
    throw InputError(ExitCode::data, where_, "is no JSON object", "write { \"key\": value, ... }");
}

void JsonObject::refuse(const char* key, const std::string& what, const std::string& fix) const {
  throw InputError(ExitCode::data, where_ + ", key '" + key + "'", what, fix);
}

const json& JsonObject::value(const char* key) {
  asked_.insert(key);
  const auto found = json_.find(key);
  if (found == json_.end()) refuse(key, "is missing", "add it");
  return *found;
}

const json& JsonObject::array(const char* key) {
  const json& found = value(key);
  if (!found.is_array()) refuse(key, "is no list", "write [ ... ]");
  return found;
}

std::string JsonObject::text(const char* key) {
  const json& found = value(key);
  if (!found.is_string()) refuse(key, "is no text", "write it in quotation marks");
  return found.get<std::string>();
}

int JsonObject::integer(const char* key) {
  const json& found = value(key);
  const bool fits = found.is_number_integer() && found.get<double>() >= 0 &&
                    found.get<double>() <= std::numeric_limits<int>::max();
  if (!fits) refuse(key, "is no whole number from 0 to 2147483647", "write for example 4");
  return found.get<int>();
}

double JsonObject::number(const char* key, double least) {
  const json& found = value(key);
  const double number = found.is_number() ? found.get<double>() : std::numeric_limits<double>::quiet_NaN();
  if (!std::isfinite(number) || number < least) {
    refuse(key, "is no number of at least " + json(least).dump(), "write for example 1.5");
  }
  return number;
}

double JsonObject::number_or(const char* key, double otherwise) { return has(key) ? number(key) : otherwise; }

bool JsonObject::flag_or(const char* key, bool otherwise) {
  if (!has(key)) return otherwise;
  const json& found = value(key);
  if (!found.is_boolean()) refuse(key, "is neither true nor false", "write one of them");
  return found.get<bool>();
}

void JsonObject::finish() const {
  for (const auto& item : json_.items()) {
    if (asked_.count(item.key()) == 0)
      refuse(shown(item.key()).c_str(), "is unknown", "remove it, or correct its name");
  }
}

}  // namespace sc::pipedream
