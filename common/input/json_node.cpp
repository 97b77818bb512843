#include "common/input/json_node.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "common/input/printable.h"

namespace sc {

void JsonNode::fail(const std::string& what) const {
  (*refuse_)((name_.empty() ? "the file" : "\"" + shown(name_) + "\"") + " " + what);
  throw std::logic_error("a refusal returned");
}

void JsonNode::must_be(const std::string& wanted) const {
  const std::string found = value_->is_object()  ? "an object"
                            : value_->is_array() ? "a list"
                                                 : shown(value_->dump(-1, ' ', true), 40);
  fail("must be " + wanted + ", not " + found);
}

std::string JsonNode::child(const std::string& key) const { return name_.empty() ? key : name_ + "." + key; }

JsonNode JsonNode::operator[](const std::string& key) const {
  if (!value_->is_object()) must_be("an object");
  const auto found = value_->find(key);
  if (found == value_->end()) JsonNode(*value_, *refuse_, child(key)).fail("is missing");
  return {*found, *refuse_, child(key)};
}

bool JsonNode::has(const std::string& key) const { return value_->is_object() && value_->contains(key); }

std::vector<std::string> JsonNode::keys() const {
  if (!value_->is_object()) must_be("an object");
  std::vector<std::string> keys;
  for (const auto& item : value_->items()) keys.push_back(item.key());
  return keys;
}

std::vector<JsonNode> JsonNode::elements() const {
  if (!value_->is_array()) must_be("a list");
  std::vector<JsonNode> elements;
  for (const nlohmann::json& element : *value_)
    elements.emplace_back(element, *refuse_, name_ + "[" + std::to_string(elements.size()) + "]");
  return elements;
}

std::int64_t JsonNode::integer(std::int64_t least, std::int64_t most) const {
  // A number beyond 64 bits becomes `least - 1`, which is refused for being too small.
  const std::int64_t found = value_->is_number_integer() ? value_->get<std::int64_t>() : least - 1;
  if (found < least || found > most)
    must_be("a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  return found;
}

double JsonNode::number(double least) const {
  if (!value_->is_number() || value_->get<double>() < least)
    must_be(least == 0 ? "a number from 0" : "a number");
  return value_->get<double>();
}

bool JsonNode::boolean() const {
  if (!value_->is_boolean()) must_be("true or false");
  return value_->get<bool>();
}

std::string JsonNode::text() const {
  if (!value_->is_string()) must_be("a text");
  return value_->get<std::string>();
}

std::map<std::string, std::string> JsonNode::texts() const {
  std::map<std::string, std::string> texts;
  for (const std::string& key : keys()) texts[key] = (*this)[key].text();
  return texts;
}

void JsonNode::only(std::initializer_list<std::string_view> known) const {
  for (const std::string& key : keys())
    if (std::ranges::find(known, key) == known.end())
      JsonNode(*value_, *refuse_, child(key)).fail("is not a key of it");
}

}  // namespace sc
