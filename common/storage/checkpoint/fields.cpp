#include "common/storage/checkpoint/fields.h"

#include <spdlog/fmt/fmt.h>

#include "common/input/json_parse.h"
#include "common/storage/checkpoint/manifest.h"

namespace sc::checkpoint {
namespace {

constexpr const char* kFix = "the file is damaged or another program's: use another checkpoint";
// Bytes, tokens, steps: four times of it are still 64 bits' when a run goes on counting.
constexpr std::int64_t kMostCounted = std::int64_t{1} << 60;
// Of 48,000 tensors; GPT-2 of 1558M parameters has 580.
constexpr JsonLimits kLimits{.bytes = kMostManifestBytes, .memory = std::size_t{24} << 20U};

}  // namespace

Json json_of_text(std::string_view text, const std::string& where) {
  return json_of_text(text, where, kLimits, kFix);
}

Json json_of_text(std::string_view text, const std::string& where, const JsonLimits& limits,
                  const std::string& fix) {
  try {
    return parse_json(text, limits);
  } catch (const JsonError& error) {
    throw InputError(ExitCode::data, fmt::format("{}:{}:{}", where, error.line(), error.column()),
                     error.what(), fix);
  }
}

Fields::Fields(const Json& object, std::string where, std::string path)
    : object_(object), where_(std::move(where)), path_(std::move(path)) {
  if (!object.is_object()) refuse(path_.empty() ? "is not a JSON object" : path_ + " must be an object");
}

void Fields::refuse(const std::string& what) const { throw InputError(ExitCode::data, where_, what, kFix); }

std::string Fields::full(const char* key) const { return path_.empty() ? key : path_ + "." + key; }

void Fields::refuse_type(const char* key, const char* wanted) const {
  refuse(fmt::format("\"{}\" must be {}, not {}", full(key), wanted, at(key).type_name()));
}

const Json& Fields::at(const char* key) const {
  const auto found = object_.find(key);
  if (found == object_.end()) refuse(fmt::format("\"{}\" is missing", full(key)));
  return *found;
}

std::int64_t Fields::count(const char* key) const {
  const Json& value = at(key);
  if (!value.is_number_integer() || value.get<std::int64_t>() < 0) refuse_type(key, "an integer from 0");
  if (value.get<std::int64_t>() > kMostCounted)
    refuse(fmt::format("\"{}\" is larger than a run can get", full(key)));
  return value.get<std::int64_t>();
}

double Fields::number(const char* key) const {
  if (!at(key).is_number()) refuse_type(key, "a number");
  return at(key).get<double>();
}

std::string Fields::text(const char* key) const {
  if (!at(key).is_string()) refuse_type(key, "a string");
  return at(key).get<std::string>();
}

std::map<std::string, std::string> Fields::texts(const char* key) const {
  const Json& value = at(key);
  std::map<std::string, std::string> texts;
  if (!value.is_object()) refuse_type(key, "an object of strings");
  for (const auto& [name, text] : value.items()) {
    if (!text.is_string()) refuse_type(key, "an object of strings");
    texts[name] = text.get<std::string>();
  }
  return texts;
}

std::vector<std::int64_t> Fields::counts(const char* key) const {
  const Json& value = at(key);
  if (!value.is_array()) refuse_type(key, "an array of integers from 0");
  std::vector<std::int64_t> counts;
  for (const Json& count : value) {
    if (!count.is_number_integer() || count.get<std::int64_t>() < 0) {
      refuse_type(key, "an array of integers from 0");
    }
    counts.push_back(count.get<std::int64_t>());
  }
  return counts;
}

std::vector<std::uint64_t> Fields::sums(const char* key) const {
  auto sums = sums_of_hex(text(key));
  if (!sums) refuse(fmt::format("\"{}\" must be check sums of 16 hexadecimal digits", full(key)));
  return *std::move(sums);
}

std::uint64_t Fields::sum(const char* key) const {
  const auto all = sums(key);
  if (all.size() != 1) refuse(fmt::format("\"{}\" must be one check sum", full(key)));
  return all.front();
}

Fields Fields::object(const char* key) const { return {at(key), where_, full(key)}; }

std::vector<Fields> Fields::objects(const char* key) const {
  const Json& value = at(key);
  if (!value.is_array()) refuse_type(key, "an array");
  std::vector<Fields> objects;
  for (const Json& object : value) {
    objects.emplace_back(object, where_, fmt::format("{}[{}]", full(key), objects.size()));
  }
  return objects;
}

OrderedJson json_of(const FileSums& sums) {
  return {{"name", sums.name},
          {"bytes", sums.bytes},
          {"header_bytes", sums.header_bytes},
          {"header_sum", hex_of(sums.header_sum)},
          {"block_sums", hex_of(sums.block_sums)}};
}

FileSums file_sums_of(const Fields& fields) {
  return {.name = fields.text("name"),
          .bytes = fields.count("bytes"),
          .header_bytes = fields.count("header_bytes"),
          .header_sum = fields.sum("header_sum"),
          .block_sums = fields.sums("block_sums")};
}

}  // namespace sc::checkpoint
