// Tests what every reader of foreign JSON refuses, before and while it is parsed.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "common/input/json_parse.h"
#include "tests/support/answers.h"

namespace sc {
namespace {

using test::expect_texts;

constexpr JsonLimits kLimits{.bytes = std::size_t{1} << 20U, .memory = std::size_t{4} << 20U};

/// How a text is refused, as "line:column what", or "accepted".
std::string refusal(std::string_view text) {
  try {
    (void)parse_json(text, kLimits);
  } catch (const JsonError& error) {
    return std::to_string(error.line()) + ":" + std::to_string(error.column()) + " " + error.what();
  }
  return "accepted";
}

std::string nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(BoundedJson, GoodTextsAreRead) {
  expect_texts(
      {{refusal("{}"), "accepted"},
       {refusal(" \n{\"a\": [1, -2.5e3, true, null, \"\\u0000 is written so\"]}\n "), "accepted"},
       {refusal(R"({"a": {"a": 1}, "b": [{"a": 1}, {"a": 2}]})"), "accepted"},  // other objects' keys
       {parse_json(R"({"b": 1, "a": "x"})", kLimits).dump(), R"({"a":"x","b":1})"},
       {refusal(nested(kMostJsonDepth)), "accepted"},
       {refusal("\"" + std::string(1000, '[') + "\""), "accepted"},  // not nested: text
       {refusal(R"(["\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["])"),
        "accepted"}});
}

TEST(BoundedJson, DepthIsRefusedWhereItBegins) {
  for (const std::size_t depth : {kMostJsonDepth + 1, 10000, 40000, 100000}) {
    EXPECT_EQ(refusal(nested(depth)), "1:65 lists and objects are nested deeper than 64") << depth;
    std::string objects;
    for (std::size_t i = 0; i < depth; ++i) objects += R"({"a":)";
    EXPECT_EQ(refusal(objects), "1:321 lists and objects are nested deeper than 64") << depth;
  }
}

TEST(BoundedJson, SizeAndNumberOfValues) {
  EXPECT_EQ(refusal(std::string((std::size_t{1} << 20U) + 1, ' ')),
            "1:1 is larger than 1 MiB: nothing of its kind needs that much");
  std::string keys = "{";
  for (int i = 0; i < 60000; ++i) keys += "\"" + std::to_string(i) + "\":0,";
  EXPECT_NE(refusal(keys).find("holds more values than any file of its kind"), std::string::npos);
  std::string lists = "[[]";
  for (int i = 0; i < 300000; ++i) lists += ",[]";
  EXPECT_NE(refusal(lists + "]").find("holds more values than any file of its kind"), std::string::npos);
}

TEST(BoundedJson, KeysAreShort) {
  expect_texts(
      {{refusal("{\"" + std::string(1000, 'k') + "\": \"" + std::string(100000, 'v') + "\"}"), "accepted"},
       {refusal("{\"" + std::string(1001, 'k') + "\": 1}"),
        "1:1005 a key of 1001 bytes: no key is that long"}});
}

TEST(BoundedJson, ZeroBytesAndWhatStandsBehind) {
  using namespace std::string_literals;
  expect_texts({{refusal("{}\0garbage"s), "1:3 a zero byte; JSON has none"},
                {refusal("{}\0"s), "1:3 a zero byte; JSON has none"},
                {refusal("{\"a\0\": 1}"s), "1:4 a zero byte; JSON has none"},
                {refusal("{} {}").substr(0, 15), "1:4 is not JSON"},
                {refusal("{}x").substr(0, 15), "1:3 is not JSON"},
                {refusal("").substr(0, 15), "1:1 is not JSON"}});
}

TEST(BoundedJson, RepeatedKeys) {
  expect_texts({
      {refusal("{\"a\": 1,\n \"a\": 2}"), "2:5 key \"a\" is given twice"},
      {refusal(R"({"b": [{"a": 1, "\u0061": 2}]})"),
       "1:25 key \"a\" is given twice"}  // one name in two spellings
  });
}

TEST(BoundedJson, NumbersThatNoDoubleHolds) {
  expect_texts({
      {refusal("[1e400]"), "1:7 the number 1e400 is too large"},
      {refusal("{\"a\":\n-1e999}"), "2:7 the number -1e999 is too large"},
      {refusal("[" + std::string(5000, '9') + "]").substr(0, 48),
       "1:5002 the number 999999999999999999999999... (5"},
      {refusal("[1e-400, 18446744073709551616]"), "accepted"}  // as doubles
  });
}

TEST(BoundedJson, MessagesAreShortAndPlain) {
  const std::string name(900000, 'k');
  const std::string key(1000, 'k');
  EXPECT_LT(refusal("{\"" + key + "\": 1, \"" + key + "\": 2}").size(), 200U);
  EXPECT_LT(refusal("{\"" + name).size(), 300U);
  EXPECT_LT(refusal(name).size(), 300U);
  EXPECT_EQ(refusal("{\"\\u001b[31m\": 1, \"\\u001b[31m\": 2}"), "1:31 key \"\\x1b[31m\" is given twice");
  EXPECT_NE(refusal("[\"\xff\"]"), "accepted");
  EXPECT_EQ(refusal("[\"\xff\x1b\"]").find('\x1b'), std::string::npos);
}

// Keeping a path per level would take memory by the square of the depth.
TEST(BoundedJson, WhatIsRefusedTakesNoMemory) {
  const auto peak = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  const std::string deep = nested(500000);
  const long before = peak();
  EXPECT_NE(refusal(deep), "accepted");
  EXPECT_LT(peak() - before, 8000);  // kB
}

}  // namespace
}  // namespace sc
