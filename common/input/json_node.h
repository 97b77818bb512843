// Strict access to JSON values: a value that is missing, of the wrong type or out of range is refused by its
// name. nlohmann-json takes seconds to compile, so only .cpp files that read JSON include this header.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "common/input/json_parse.h"

namespace sc {

/// One JSON value with its path for messages. The parsed text must outlive it.
///   Errors  what `refuse` throws for, e.g., "ranks[1].cores" must be a whole number, not "two"
class JsonNode {
 public:
  /// A function that throws the reader's own error for a bad file: the file's name, `what`, and the fix.
  using Refuse = std::function<void(const std::string& what)>;
  /// The largest count accepted anywhere: sums of a few such numbers still fit into 64 bits.
  static constexpr std::int64_t kMost = std::int64_t{1} << 60;

  JsonNode(const nlohmann::json& value, const Refuse& refuse, std::string name = "")
      : value_(&value), refuse_(&refuse), name_(std::move(name)) {}

  [[nodiscard]] JsonNode operator[](const std::string& key) const;
  [[nodiscard]] bool has(const std::string& key) const;
  [[nodiscard]] std::vector<std::string> keys() const;
  [[nodiscard]] std::vector<JsonNode> elements() const;
  [[nodiscard]] std::int64_t integer(std::int64_t least = 0, std::int64_t most = kMost) const;
  [[nodiscard]] int small(int least = 0) const {
    return static_cast<int>(integer(least, std::numeric_limits<int>::max()));
  }
  [[nodiscard]] double number(double least = -std::numeric_limits<double>::infinity()) const;
  [[nodiscard]] bool boolean() const;
  [[nodiscard]] std::string text() const;
  [[nodiscard]] std::map<std::string, std::string> texts() const;
  /// Refuses an object that has other keys than `known`.
  void only(std::initializer_list<std::string_view> known) const;

  [[nodiscard]] const nlohmann::json& value() const { return *value_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] void must_be(const std::string& wanted) const;

 private:
  [[nodiscard]] std::string child(const std::string& key) const;
  const nlohmann::json* value_;
  const Refuse* refuse_;
  std::string name_;
};

/// Parses `text` and returns what `of` makes of it.
///   line    the number of the line in `file` that `text` is; 0 if `text` is the whole file
///   Errors  Error(code, file and place, what is wrong, fix): not JSON, out of bounds, or refused by `of`
template <class Error, class Code, class Of>
// NOLINTNEXTLINE(readability-function-size): each is another word of the message
auto of_json(std::string_view text, const JsonLimits& limits, const std::string& file, Code code,
             const std::string& fix, const Of& of, std::int64_t line = 0) {
  const std::string at_line = line > 0 ? file + ":" + std::to_string(line) : file;
  const JsonNode::Refuse refuse = [&](const std::string& what) { throw Error(code, at_line, what, fix); };
  nlohmann::json json;
  try {
    json = parse_json(text, limits);
  } catch (const JsonError& error) {
    const auto row = std::max<std::int64_t>(line, 1) + static_cast<std::int64_t>(error.line()) - 1;
    throw Error(code, file + ":" + std::to_string(row) + ":" + std::to_string(error.column()), error.what(),
                fix);
  }
  return of(JsonNode(json, refuse));
}

}  // namespace sc
