#include "common/input/json_parse.h"

#include <istream>
#include <set>
#include <sstream>
#include <vector>

#include "common/input/printable.h"

namespace sc {
namespace {

using nlohmann::json;

/// The error for a number too large for a double. It ends where the digits in the parser's message do.
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
  std::stringbuf in{std::string(text), std::ios::in};
  std::istream stream(&in);
  const auto taken = [&in] {
    return static_cast<std::size_t>(in.pubseekoff(0, std::ios::cur, std::ios::in));
  };
  std::vector<std::set<std::string>> open;  // the keys read so far of each open object
  const auto keep = [&](int /*depth*/, json::parse_event_t event, const json& value) {
    if (event == json::parse_event_t::object_start) open.emplace_back();
    if (event == json::parse_event_t::object_end) open.pop_back();
    if (event != json::parse_event_t::key) return true;
    const auto& name = value.get_ref<const std::string&>();
    if (!open.back().insert(name).second)
      throw JsonError(text, taken(), "key \"" + shown(name) + "\" is given twice");
    return true;
  };
  try {
    return json::parse(stream, keep);
  } catch (const json::parse_error& error) {
    throw JsonError(text, error.byte > 0 ? error.byte - 1 : 0, "is not JSON: " + json_words(error.what()));
  } catch (const json::out_of_range& error) {
    throw too_large_number(text, taken() > 0 ? taken() - 1 : 0, error.what());
  }
}

}  // namespace sc
