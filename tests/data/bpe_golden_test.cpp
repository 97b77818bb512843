// GPT-2's tokenizer against tiktoken: golden/bpe_golden.json, made by golden/bpe_make_golden.py.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/base/text.h"
#include "common/data/bpe/split.h"
#include "common/data/bpe_tokenizer.h"
#include "common/data/corpus.h"

namespace sc {
namespace {

const nlohmann::json& golden() {
  static const auto file =
      nlohmann::json::parse(read_file(*posix_file_ops(), "tests/data/golden/bpe_golden.json"));
  return file;
}

const BpeTokenizer& gpt2() {
  static const auto tokenizer = gpt2_tokenizer();
  return *tokenizer;
}

void expect_equal(const std::string& text, const nlohmann::json& expected) {
  ASSERT_EQ(text.size(), expected.at("bytes"));
  const std::vector<TokenId> ids = gpt2().encode(text);
  EXPECT_EQ(ids.size(), expected.at("tokens"));
  const auto bytes = std::as_bytes(std::span(ids));
  EXPECT_EQ(hex_sha256({reinterpret_cast<const char*>(bytes.data()), bytes.size()}), expected.at("sha256"));
  EXPECT_EQ(gpt2().decode(ids), text);
}

TEST(BpeGolden, HostileTextsGiveTiktokensIds) {
  ASSERT_GT(golden().at("cases").size(), 60U);
  for (const auto& example : golden().at("cases")) {
    const std::string text = example.at("text");
    const std::vector<TokenId> ids = gpt2().encode(text);
    EXPECT_EQ(ids, example.at("ids").get<std::vector<TokenId>>()) << example.at("text");
    EXPECT_EQ(gpt2().decode(ids), text);
  }
}

TEST(BpeGolden, MegabyteOfHostileFragments) {
  const auto fragments = golden().at("mixture").at("fragments").get<std::vector<std::string>>();
  std::string text;
  std::uint64_t state = 1;
  for (int i = 0; i < 400'000; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;  // Knuth's MMIX; the script's mixture()
    text += fragments[(state >> 33U) % fragments.size()];
  }
  ASSERT_GT(text.size(), 1'000'000U);
  expect_equal(text, golden().at("mixture"));
}

TEST(BpeGolden, SixNovels) {
  const Path archive = austen_archive();
  expect_equal(unpack_gzip(read_file(*posix_file_ops(), archive), archive), golden().at("austen"));
}

TEST(BpeGolden, EveryCodePointHasTheClassOfTiktokensPattern) {
  constexpr char32_t kUnicodeEnd = 0x110000, kSurrogates = 0xD800, kSurrogatesEnd = 0xE000;
  std::string classes;
  for (char32_t code = 0; code < kUnicodeEnd; ++code) {
    const bool surrogate = code >= kSurrogates && code < kSurrogatesEnd;
    classes.push_back(static_cast<char>(surrogate ? CharClass::other : char_class(code)));
  }
  EXPECT_EQ(hex_sha256(classes), golden().at("classes_sha256"));
}

}  // namespace
}  // namespace sc
