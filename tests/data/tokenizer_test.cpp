#include "common/data/tokenizer.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/storage/temp_dir.h"

namespace sc {
namespace {

TEST(ByteTokenizer, EveryByteIsItsOwnId) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  const ByteTokenizer tokenizer;
  const std::vector<TokenId> ids = tokenizer.encode(all);
  ASSERT_EQ(ids.size(), 256U);
  for (std::size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(ids[i], i);
  EXPECT_EQ(tokenizer.decode(ids), all);
  EXPECT_EQ(tokenizer.vocab(), 257);
  EXPECT_EQ(tokenizer.end_of_text(), 256);
}

TEST(ByteTokenizer, EndOfTextIsNoTextAndLargerIdsAreErrors) {
  const ByteTokenizer tokenizer;
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{72, 105, 256, 33}), "Hi!");
  EXPECT_THROW((void)tokenizer.decode(std::vector<TokenId>{257}), std::out_of_range);
}

TEST(Tokenizers, AreFoundByName) {
  EXPECT_EQ(make_tokenizer("byte")->name(), "byte");
  EXPECT_EQ(
      test::input_error([] { make_tokenizer("word"); }),
      "64|data.tokenizer: \"word\" cannot turn text into tokens here; this program has: byte, gpt2|--set "
      "data.tokenizer=byte, "
      "or --data with a token file made by that tokenizer");
  EXPECT_EQ(end_of_text_of("byte"), 256);
  EXPECT_EQ(end_of_text_of("gpt2"), 50256);
}

}  // namespace
}  // namespace sc
