// Compares GPT-2's tokenizer with tiktoken: golden/bpe_golden.json, made by golden/bpe_make_golden.py.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/base/text.h"
#include "common/data/bpe/split.h"
#include "common/data/bpe_tokenizer.h"
#include "common/data/corpus.h"
#include "common/input/utf8.h"

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
  EXPECT_EQ(ids.size(), expected.at("tokens").get<std::size_t>());
  const auto bytes = std::as_bytes(std::span(ids));
  EXPECT_EQ(hex_sha256({reinterpret_cast<const char*>(bytes.data()), bytes.size()}),
            expected.at("sha256").get<std::string>());
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

/// More than a megabyte of fragments, as mixture() of the script makes them.
std::string mixture(const std::vector<std::string>& fragments) {
  std::string text;
  std::uint64_t state = 1;
  for (int i = 0; i < 400'000; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;  // Knuth's MMIX
    text += fragments[(state >> 33U) % fragments.size()];
  }
  return text;
}

std::string from_hex(const std::string& digits) {
  std::string bytes;
  constexpr int kHex = 16;
  for (std::size_t at = 0; at < digits.size(); at += 2) {
    bytes.push_back(static_cast<char>(std::stoi(digits.substr(at, 2), nullptr, kHex)));
  }
  return bytes;
}

std::string_view characters_before_the_first_wrong_byte(std::string_view text) {
  std::size_t end = 0;
  while (end < text.size()) {
    const Utf8Char next = first_utf8(text.substr(end));
    if (next.state != Utf8Char::State::complete) break;
    end += next.length;
  }
  return text.substr(0, end);
}

/// Rebuilds tiktoken's _encode_bytes() from our parts: text before the first wrong byte is encoded, except
/// for its last piece, which is merged with all bytes from the wrong one on as one piece.
std::vector<TokenId> merged_from_the_first_wrong_byte(std::string_view text) {
  const std::string_view valid = characters_before_the_first_wrong_byte(text);
  std::size_t last = 0;  // where the last piece begins
  while (last < valid.size() && last + first_piece(valid.substr(last)) < valid.size()) {
    last += first_piece(valid.substr(last));
  }
  std::vector<TokenId> ids = gpt2().encode(valid.substr(0, last));
  for (const TokenId id : gpt2().merge(text.substr(last))) ids.push_back(id);
  return ids;
}

TEST(BpeGolden, MegabyteOfHostileFragments) {
  const auto fragments = golden().at("mixture").at("fragments").get<std::vector<std::string>>();
  const std::string text = mixture(fragments);
  ASSERT_GT(text.size(), 1'000'000U);
  expect_equal(text, golden().at("mixture"));
}

TEST(BpeGolden, MegabyteOfFragmentsThatAreNotUtf8) {
  const nlohmann::json& wrong = golden().at("wrong").at("mixture");
  auto fragments = golden().at("mixture").at("fragments").get<std::vector<std::string>>();
  for (const auto& fragment : wrong.at("fragments")) fragments.push_back(from_hex(fragment));
  const std::string text = mixture(fragments);
  ASSERT_GT(text.size(), 1'000'000U);
  expect_equal(text, wrong);
}

TEST(BpeGolden, BytesThatAreNotUtf8GiveTheIdsOfTiktokensPatternAndMerges) {
  const nlohmann::json& cases = golden().at("wrong").at("cases");
  ASSERT_GT(cases.size(), 50U);
  for (const auto& example : cases) {
    const std::string text = from_hex(example.at("bytes"));
    ASSERT_LT(characters_before_the_first_wrong_byte(text).size(), text.size()) << example.at("bytes");
    const std::vector<TokenId> ids = gpt2().encode(text);
    EXPECT_EQ(ids, example.at("ids").get<std::vector<TokenId>>()) << example.at("bytes");
    EXPECT_EQ(gpt2().decode(ids), text);
  }
}

TEST(BpeGolden, TiktokensBytesInterfaceDiffersOnlyInThatItSplitsNoMoreAfterAWrongByte) {
  int same = 0, different = 0;
  for (const auto& example : golden().at("wrong").at("cases")) {
    const bool differs = example.contains("tiktoken");
    (differs ? different : same) += 1;
    const auto tiktokens = example.at(differs ? "tiktoken" : "ids").get<std::vector<TokenId>>();
    const std::string text = from_hex(example.at("bytes"));
    EXPECT_EQ(merged_from_the_first_wrong_byte(text), tiktokens) << example.at("bytes");
    EXPECT_EQ(gpt2().encode(text) == tiktokens, !differs) << example.at("bytes");
  }
  EXPECT_GT(same, 40);
  EXPECT_GE(different, 5);
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
  EXPECT_EQ(hex_sha256(classes), golden().at("classes_sha256").get<std::string>());
}

}  // namespace
}  // namespace sc
