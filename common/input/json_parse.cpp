#include "common/input/json_parse.h"

#include <set>
#include <vector>

#include "common/input/counting_iterator.h"
#include "common/input/printable.h"

namespace sc {
namespace {

using nlohmann::json;

/// Refuses a key that its object has already.
class Keys {
 public:
  Keys(std::string_view text, const std::size_t& taken) : text_(text), taken_(taken) {}

  bool take(json::parse_event_t event, const json& value) {
    if (event == json::parse_event_t::object_start) open_.emplace_back();
    if (event == json::parse_event_t::object_end) open_.pop_back();
    if (event != json::parse_event_t::key) return true;
    const auto& name = value.get_ref<const std::string&>();
    if (!open_.back().insert(name).second) {
      throw JsonError(text_, taken_, "key \"" + shown(name) + "\" is given twice");
    }
    return true;
  }

 private:
  std::string_view text_;
  const std::size_t& taken_;
  std::vector<std::set<std::string>> open_;  // keys of the objects that are open
};

/// Where a number ends that no double holds; the parser's words have its digits between quotes.
JsonError too_large_number(std::string_view text, std::size_t taken, const std::string& words) {
  const std::size_t begin = words.find('\''), end = words.rfind('\'');
  const std::string digits = begin < end ? words.substr(begin + 1, end - begin - 1) : "";
  return {text, taken, "the number " + shown(digits, 24) + " is too large"};
}

}  // namespace

std::string json_words(std::string message) {
  if (const auto dash = message.find(" - "); dash != std::string::npos) message.erase(0, dash + 3);
  const auto expected = message.find("; expected ");
  if (const auto read = message.find("; last read: "); read != std::string::npos) {
    message.erase(read,
                  expected != std::string::npos && expected > read ? expected - read : std::string::npos);
  }
  return shown(message, 200);
}

json parse_json(std::string_view text, const JsonLimits& limits) {
  require_bounded(text, limits);
  std::size_t taken = 0;
  Keys keys(text, taken);
  try {
    return json::parse(
        begin_of(text, &taken), end_of(text, &taken),
        [&](int /*depth*/, json::parse_event_t event, json& value) { return keys.take(event, value); });
  } catch (const json::parse_error& error) {
    throw JsonError(text, error.byte > 0 ? error.byte - 1 : 0, "is not JSON: " + json_words(error.what()));
  } catch (const json::out_of_range& error) {
    throw too_large_number(text, taken > 0 ? taken - 1 : 0, error.what());
  }
}

}  // namespace sc
