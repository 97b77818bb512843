#include "common/data/bpe_tokenizer.h"

#include <gtest/gtest.h>

#include <random>
#include <stdexcept>

#include "common/data/bpe/split.h"
#include "common/input/utf8.h"
#include "tests/storage/temp_dir.h"
#include "tests/support/answers.h"

namespace sc {
namespace {

using test::input_error;

std::vector<std::string> pieces(std::string_view text) {
  std::vector<std::string> found;
  while (!text.empty()) {
    found.emplace_back(text.substr(0, first_piece(text)));
    text.remove_prefix(found.back().size());
  }
  return found;
}

using Pieces = std::vector<std::string>;

TEST(Split, WordsCarryTheBlankBeforeThem) {
  test::expect_each<Pieces>(
      {{pieces("Hello, world 42 times!"), (Pieces{"Hello", ",", " world", " 42", " times", "!"})},
       {pieces("a  b \n\n c"), (Pieces{"a", " ", " b", " \n\n", " c"})},
       {pieces("a\n\nb\t"), (Pieces{"a", "\n", "\n", "b", "\t"})},
       {pieces("  "), (Pieces{"  "})}});
}

TEST(Split, ContractionsAreCutOnlyWhereTheirApostropheBeginsAPiece) {
  EXPECT_EQ(pieces("we'll she'd I'M"), (Pieces{"we", "'ll", " she", "'d", " I", "'", "M"}));
  EXPECT_EQ(pieces("'re '''s !'s"), (Pieces{"'re", " '''", "s", " !'", "s"}));
}

TEST(Split, WrongBytesAreOtherCharacters) {
  test::expect_each<Pieces>({
      {pieces("a\xFF\xC3 b"), (Pieces{"a", "\xFF\xC3", " b"})},
      {pieces("\xC3\xA9\xC3"), (Pieces{"\xC3\xA9", "\xC3"})},         // a letter, then half of one
      {pieces("x\xED\xA0\x80y"), (Pieces{"x", "\xED\xA0\x80", "y"})}  // a surrogate is no character
  });
}

TEST(Bpe, TheEarliestMergeWinsThenTheLeftmost) {
  const BpeTokenizer tokenizer("small", "#version\nb c\na b\nbc d\na a\naa a\n", "merges");
  EXPECT_EQ(tokenizer.vocab(), 256 + 5 + 1);
  EXPECT_EQ(tokenizer.end_of_text(), 261);
  const auto text_of = [&](std::string_view text) {
    Pieces tokens;
    for (const TokenId id : tokenizer.encode(text)) {
      tokens.push_back(tokenizer.decode(std::vector<TokenId>{id}));
    }
    return tokens;
  };
  EXPECT_EQ(text_of("abcd"), (Pieces{"a", "bcd"}));
  EXPECT_EQ(text_of("abab"), (Pieces{"ab", "ab"}));
  EXPECT_EQ(text_of("aaaaa"), (Pieces{"aa", "aaa"}));
  EXPECT_EQ(tokenizer.encode("!~\n \xAD"), (std::vector<TokenId>{0, 93, 198, 220, 255}));
}

TEST(Bpe, EveryTokenOfGpt2MergesToItself) {
  const auto tokenizer = gpt2_tokenizer();
  EXPECT_EQ(tokenizer->vocab(), 50257);
  EXPECT_EQ(tokenizer->end_of_text(), 50256);
  // encode() takes a whole token without merging; merging must agree, or that shortcut would change ids.
  for (TokenId id = 0; id < 50256; ++id) {
    ASSERT_EQ(tokenizer->merge(tokenizer->decode(std::vector<TokenId>{id})), std::vector<TokenId>{id});
  }
}

TEST(Bpe, AnyBytesComeBack) {
  const auto tokenizer = make_tokenizer("gpt2");
  EXPECT_EQ(tokenizer->name(), "gpt2");
  std::mt19937 random(1);
  for (int length = 0; length < 200; ++length) {
    std::string bytes;
    for (int i = 0; i < length; ++i) bytes.push_back(static_cast<char>(random()));
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(bytes)), bytes);
  }
  EXPECT_EQ(tokenizer->encode("\xFF"), std::vector<TokenId>{187});
}

TEST(Bpe, EndOfTextIsNoTextAndLargerIdsAreErrors) {
  const auto tokenizer = gpt2_tokenizer();
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{15496, 50256, 995}), "Hello world");
  EXPECT_THROW((void)tokenizer->decode(std::vector<TokenId>{50257}), std::out_of_range);
  EXPECT_GT(tokenizer->encode("<|endoftext|>").size(), 1U);
}

TEST(Bpe, BadMergesAreRefusedWithTheLine) {
  const auto error = [](std::string_view merges) {
    std::string text = input_error([&] { BpeTokenizer("x", merges, "vocab.bpe"); });
    return text.substr(0, text.rfind('|'));
  };
  test::expect_texts({{error("#\na b\nab\n"), "65|vocab.bpe:3: \"ab\" is not two symbols"},
                      {error("#\na b c\n"), "65|vocab.bpe:2: \"a b c\" is not two symbols"},
                      {error("#\na \xFF\n"), "65|vocab.bpe:2: \"a \\xff\" is not two symbols"},
                      {error("#\nab c\n"), "65|vocab.bpe:2: merges a symbol that no line before it has made"},
                      {error("#\na b\nb c\nab c\na bc\n"),
                       "65|vocab.bpe:5: makes a symbol that a line before it has made"}});
}

TEST(Bpe, AMissingOrOtherFileIsRefusedWithTheFix) {
  const test::TempDir dir;
  const auto error = [&] {
    return input_error([&] { (void)gpt2_tokenizer(dir / "vocab.bpe"); }, dir.path().string());
  };
  const std::string fix = "|git checkout -- common/data/bpe, or common/data/prepare/fetch_bpe.sh";
  EXPECT_EQ(error(), "69|DIR/vocab.bpe: GPT-2's merges are not there" + fix);
  posix_file_ops(Syncing::skip)->create(dir / "vocab.bpe")->append(as_bytes("#version: 0.2\n"));
  EXPECT_EQ(error(),
            "65|DIR/vocab.bpe: not GPT-2's merges: sha256 "
            "215a6aba00d27bcd42b8ad1dccc4b4d23f40decc150bdbf0d5ce6bb2410708df instead of " +
                std::string(kGpt2MergesSha256) + fix);
}

TEST(Utf8Stream, HoldsBackCharactersUntilTheyAreComplete) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("a\xE4"), "a");
  EXPECT_EQ(stream.push("\xB8"), "");
  EXPECT_EQ(stream.push("\xAD!"), "\xE4\xB8\xAD!");
  EXPECT_EQ(stream.finish(), "");
  EXPECT_EQ(stream.push("\xF0\x9F\x98"), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Utf8Stream, EachLongestWrongBeginningBecomesOneReplacement) {
  const auto all = [](std::string_view bytes) {
    Utf8Stream stream;
    std::string text = stream.push(bytes);
    return text + stream.finish();
  };
  const std::string r = "\xEF\xBF\xBD";
  test::expect_texts(
      {{all("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63"), "a" + r + r + r + "b" + r + "c"},  // Unicode 3.9
       {all("\xC0\xAF\xE0\x80\xBF"), r + r + r + r + r},                                    // overlong
       {all("\xED\xA0\x80"), r + r + r},                                                    // surrogate
       {all("\xF4\x91\x92\x93\xFF"), r + r + r + r + r},                                    // past U+10FFFF
       {all("\xF4\x8F\xBF\xBF"), "\xF4\x8F\xBF\xBF"}});
}

}  // namespace
}  // namespace sc
