// Texts that every JSON reader must refuse, made from a text that it accepts. Standard library only.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sc::test {

struct BadJson {
  std::string name, text;
};

inline std::string repeated(const std::string& part, std::size_t times) {
  std::string all;
  for (std::size_t i = 0; i < times; ++i) all += part;
  return all;
}

/// Broken variants of `good`, an object with at least one key, whose first key takes no list.
inline std::vector<BadJson> bad_json(const std::string& good) {
  const std::size_t begin = good.find('{') + 1, key = good.find('"', begin), colon = good.find(':', key);
  const auto with = [&](const std::string& entry) {
    return good.substr(0, begin) + entry + "," + good.substr(begin);
  };
  std::vector<BadJson> all = {
      {"zero and more", good + std::string(1, '\0') + "garbage"},
      {"zero at the end", good + std::string(1, '\0')},
      {"something behind", good + "{}"},
      {"a letter behind", good + " x"},
      {"cut off", good.substr(0, good.rfind('}'))},
      {"empty", ""},
      {"a long key", with("\"" + std::string(10'000'000, 'k') + "\":1")},
      {"a long key without an end", good.substr(0, begin) + "\"" + std::string(100'000, 'k')},
      {"a long number", with("\"n\":" + std::string(10'000, '9'))},
      {"a key twice", with(good.substr(key, colon - key) + ":1")},
      {"a key twice, escaped", with("\"zz\":1,\"\\u007az\":2")},
      {"too large a number", with("\"n\":1e400")},
      {"no UTF-8", with("\"\xff\xfe\":1")},
      {"a text that is no UTF-8", with("\"n\":\"\xc3(\"")},
      {"an escape code", with("\"\x1b[31m\":1")},
      {"an escape code, escaped", with("\"\\u001b[31m\":1,\"\\u001b[31m\":2")}};
  for (const std::size_t depth : {65, 10000, 40000, 100000}) {
    const std::string n = std::to_string(depth);
    all.push_back({"lists " + n, with("\"deep\":" + repeated("[", depth) + repeated("]", depth))});
    all.push_back({"objects " + n, with(repeated("\"a\":{", depth) + "\"b\":1" + repeated("}", depth))});
    all.push_back({"lists without an end " + n, with("\"deep\":" + repeated("[", depth))});
  }
  return all;
}

/// Expects that a reader's message `said` begins with `begin`, is short, and contains no terminal control
/// codes.
inline void expect_refused(const BadJson& bad, const std::string& begin, const std::string& said) {
  EXPECT_EQ(said.substr(0, begin.size()), begin) << bad.name << ": " << said.substr(0, 400);
  EXPECT_LT(said.size(), 600U) << bad.name;
  for (const char c : said)
    if ((static_cast<unsigned char>(c) < ' ' && c != '\n') || c == '\x7f')
      ADD_FAILURE() << bad.name << ": " << said;
}

}  // namespace sc::test
