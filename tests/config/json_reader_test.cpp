#include "common/config/json_reader.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/config/support.h"
#include "tests/support/bad_json.h"

namespace sc {
namespace {

std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(JsonReader, GivesEveryScalarWithItsPathFormAndPlace) {
  const auto entries =
      read_json("{\n  \"a\": 12,\n  \"b\": {\"c\" : -1e-3, \"d\":\"x\\\"y\"},\t\"e\":true}\n", "f.json");
  std::vector<std::string> found;
  std::vector<Value::Form> forms;
  for (const auto& entry : entries) {
    found.push_back(entry.path + " at " + entry.key_where + " is " + entry.value.text + " at " +
                    entry.value_where);
    forms.push_back(entry.value.form);
  }
  EXPECT_EQ(found,
            (std::vector<std::string>{
                "a at f.json:2:3 is 12 at f.json:2:8", "b.c at f.json:3:9 is -1e-3 at f.json:3:15",
                "b.d at f.json:3:22 is x\"y at f.json:3:26", "e at f.json:3:35 is true at f.json:3:39"}));
  EXPECT_EQ(forms,
            (std::vector{Value::Form::integer, Value::Form::real, Value::Form::text, Value::Form::boolean}));
}

TEST(JsonReader, PlacesSurviveEverythingThatMayFollowANumber) {
  for (const std::string after : {"}", " }", "\n}", "\t}", ",\"z\":1}"}) {
    const auto entries = read_json("{\"a\": 7" + after, "f");
    EXPECT_EQ(entries[0].value_where, "f:1:7") << after;
    EXPECT_EQ(entries[0].value.text, "7") << after;
  }
}

TEST(JsonReader, ColumnsCountCharactersNotBytes) {
  const auto entries = read_json("{\"\xC3\xA9\": 1}", "f");  // one letter of two bytes
  EXPECT_EQ(entries[0].value_where, "f:1:7");
}

TEST(JsonReader, AnEmptyObjectChangesNothing) { EXPECT_TRUE(read_json(" {} \n", "f").empty()); }

TEST(JsonReader, WhatNoJsonMayBe) {
  for (const test::BadJson& bad : test::bad_json(read_file("configs/tiny.json")))
    expect_refused(bad, "f.json:", refusal([&] { (void)read_json(bad.text, "f.json"); }));
}

// Each entry keeps its path, so a long name above many of them would take memory by their product.
TEST(JsonReader, PathsAreShort) {
  const std::string long_path = "{\"a\": {\"" + std::string(300, 'k') + "\": 1}}";
  EXPECT_EQ(refusal([&] { (void)read_json(long_path, "f.json"); }),
            "f.json:1:8: \"" + std::string(80, 'k') +
                "... (300 bytes)\": no key is that long\n  fix: docs/config.md lists all keys");
  EXPECT_EQ(read_json("{\"" + std::string(200, 'k') + "\": 1}", "f").size(), 1U);
}

TEST(JsonReader, AFileThatIsTooLargeIsNotReadWhole) {
  const std::string path = ::testing::TempDir() + "/large.json";
  std::ofstream(path) << "{}";
  std::filesystem::resize_file(path, std::uintmax_t{1} << 33U);
  const std::string text = read_config_file(path, "--workload");
  EXPECT_LT(text.size(), 100'000U);
  EXPECT_EQ(refusal([&] { (void)read_json(text, "f.json"); }).substr(0, 35),
            "f.json:1:1: is larger than 64 KiB: ");
  std::filesystem::remove(path);
}

struct Case {
  std::string text, message;
};

TEST(JsonReader, RefusesWithPlaceReasonAndFix) {
  const std::string rules =
      "\n  fix: JSON: one object, double quotes round keys and texts, a comma between entries, no comments";
  const std::vector<Case> cases = {
      {"",
       "f:1:1: the file ends before its object is closed\n  fix: add the missing brace, or restore the rest "
       "of the file"},
      {"{\"a\": 1,\n \"b\": {",
       "f:2:8: the file ends before its object is closed\n  fix: add the missing brace, or restore the rest "
       "of the file"},
      {"{\"a\": 1,\n}", "f:2:1: a comma before a closing brace\n  fix: remove the comma"},
      {"{\"a\": 1 \"b\": 2}", "f:1:9: a comma is missing before this key\n  fix: add the comma"},
      {"{\n// x\n\"a\": 1}",
       "f:2:1: comments are not part of JSON\n  fix: remove it; docs/config.md says what each key means"},
      {"{\"a\": 1, # x\n\"b\": 1}",
       "f:1:10: comments are not part of JSON\n  fix: remove it; docs/config.md says what each key means"},
      {"{'a': 1}", "f:1:2: texts and keys stand in double quotes\n  fix: write \" instead of '"},
      {"{\"a\": \"x\n\"}", "f:1:7: a text without its closing quote\n  fix: add the quote"},
      {"{\"a\": \"x", "f:1:7: a text without its closing quote\n  fix: add the quote"},
      {"{\"a\" 1}", "f:1:6: not JSON: unexpected number literal; expected ':'" + rules},
      {"{a: 1}", "f:1:2: not JSON: invalid literal; expected string literal" + rules},
      {"{\"a\": 1} x", "f:1:10: not JSON: invalid literal; expected end of input" + rules},
      {"{\"a\": tru}", "f:1:7: not JSON: invalid literal" + rules},
      {"{\"a\": 01}", "f:1:7: not JSON: unexpected number literal; expected '}'" + rules},
      {"[1, 2]", "f:1:1: the file must hold one object" + rules},
      {"7", "f:1:1: the file must hold one object" + rules},
      {"null", "f:1:1: the file must hold one object" + rules},
      {"{\"a\": [1]}", "f:1:7: a: no key takes a list\n  fix: give one value"},
      {"{\"m\": {\"a\": null}}",
       "f:1:13: m.a: null is not a value\n  fix: remove the key: its default holds then"},
      {"{\"a\": 1e999}", "f:1:7: a: the number is too large\n  fix: give a finite number"},
      {"{\"a\": 1,\n \"a\": 2}", "f:2:2: \"a\" is given twice, first at f:1:2\n  fix: remove one of them"},
      {"{\"m\": {\"a\": 1}, \"m\": {\"b\": 2}}",
       "f:1:17: \"m\" is given twice, first at f:1:2\n  fix: remove one of them"},
      {"{\"m.a\": 1,\"m\": {\"a\": 1}}",
       "f:1:17: \"m.a\" is given twice, first at f:1:2\n  fix: remove one of them"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(refusal([&c] { (void)read_json(c.text, "f"); }), c.message) << c.text;
  }
}

// Any content of a file must give values or one InputError, never a crash or another exception.
void must_answer(const std::string& text) {
  try {
    (void)read_json(text, "f");
  } catch (const InputError& error) {
    for (const char c : error.where() + error.fix())
      EXPECT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << error.what();
  }
}

TEST(JsonReader, EveryTruncationOfAFileIsRefused) {
  const std::string whole = read_file("configs/tiny.json");
  ASSERT_GT(whole.size(), 100U);
  const std::size_t closed = whole.rfind('}');
  for (std::size_t length = 0; length <= closed; ++length) {
    EXPECT_NE(refusal([&] { (void)read_json(whole.substr(0, length), "f"); }), "") << length;
  }
}

TEST(JsonReader, DamagedBytesNeverCrash) {
  const std::string whole = read_file("configs/tiny.json");
  const std::string damage("{}[]\",:\\/#'0-e\0\x80\xff \n", 20);
  std::uint32_t random = 1;
  for (int round = 0; round < 4000; ++round) {
    std::string text = whole;
    for (int change = 0; change < 1 + round % 3; ++change) {
      random = random * 1664525U + 1013904223U;  // Numerical Recipes' generator: the same damage in every run
      text[(random >> 8) % text.size()] = damage[(random >> 3) % damage.size()];
    }
    must_answer(text);
  }
}

TEST(JsonReader, DeepNestingDoesNotExhaustTheStack) {
  std::string text;
  for (int depth = 0; depth < 5000; ++depth) text += "{\"a\":";
  must_answer(text);
}

TEST(JsonReader, AFileThatCannotBeReadNamesTheFlag) {
  EXPECT_EQ(
      refusal([] { (void)read_config_file("absent/none.json", "--workload absent/none.json"); }),
      "--workload absent/none.json: absent/none.json cannot be read\n"
      "  fix: give the path of a JSON file, e.g. configs/tiny.json, as seen from the current directory");
  EXPECT_NE(refusal([] { (void)read_config_file("configs", "--workload configs"); }), "");
}

}  // namespace
}  // namespace sc
