#include "common/data/token_file.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "tests/storage/temp_dir.h"
#include "tests/support/answers.h"
#include "tests/support/file_ops_decorators.h"

namespace sc {
namespace {

using test::input_error;
using TokenFiles = test::InTempDir;

const Path kGolden = "tests/data/golden/tokens.bin";
const std::vector<TokenId> kTokens = {50256, 0, 1, 65535, 256, 318, 262};

TEST_F(TokenFiles, ReadsWhatAnotherWriterWrote) {
  TokenFile file(kGolden);
  EXPECT_EQ(std::vector<TokenId>(file.tokens().begin(), file.tokens().end()), kTokens);
  file.check_tokens(65536);
}

TEST_F(TokenFiles, WritesTheSameBytes) {
  write_token_file(*ops_, dir_ / "a.bin", kTokens);
  EXPECT_EQ(read_file(*ops_, dir_ / "a.bin"), read_file(*ops_, kGolden));
  write_token_file(*ops_, dir_ / "empty.bin", {});
  EXPECT_TRUE(TokenFile(dir_ / "empty.bin").tokens().empty());
}

TEST_F(TokenFiles, AFullDiskLeavesNothing) {
  FaultyFileOps full(*ops_, {.op = FileOp::write, .nth = 1, .error = ENOSPC});
  EXPECT_EQ(error_of([&] { write_token_file(full, dir_ / "a.bin", kTokens); }),
            "73|DIR/.a.bin.tmp-0: cannot write 7 bytes at byte 1031: No space left on device (ENOSPC)|free "
            "space on the file "
            "system that holds it, or write elsewhere");
  EXPECT_TRUE(ops_->list(dir_.path()).empty());
}

/// The bytes of a file with these three numbers in its header, and `tokens` zeros.
std::string file_of(std::int32_t magic, std::int32_t version, std::int32_t count, std::size_t tokens) {
  std::string bytes(1024 + 2 * tokens, '\0');
  const std::int32_t header[] = {magic, version, count};
  std::memcpy(bytes.data(), header, sizeof(header));
  return bytes;
}

TEST_F(TokenFiles, WrongFilesAreRefusedWithTheReason) {
  const auto error = [&](const std::string& content) {
    put("a.bin", content);
    return error_of([&] { TokenFile(dir_ / "a.bin"); });
  };
  const std::string fix = "|give a text file, or a 2-byte token file of llm.c (magic 20240520, version 1)";
  test::expect_texts({{error(""), "65|DIR/a.bin: 0 bytes; a token file starts with a header of 1024" + fix},
                      {error(std::string(1023, 'x')),
                       "65|DIR/a.bin: 1023 bytes; a token file starts with a header of 1024" + fix}});
  const std::string bare =
      "|if it holds bare 2-byte ids (nanoGPT's): prepare DIR/a.bin --format u16 --out TOKENS.bin; otherwise ";
  test::expect_texts(
      {{error(file_of(1, 1, 4, 4)), "65|DIR/a.bin: magic 1 instead of 20240520" + bare + fix.substr(1)},
       {error(std::string(1000, 'x')),
        "65|DIR/a.bin: 1000 bytes; a token file starts with a header of 1024" + bare + fix.substr(1)},
       {error(file_of(20240801, 7, 4, 8)),
        "65|DIR/a.bin: magic 20240801 instead of 20240520: these are llm.c's 4-byte tokens of Llama 3" + fix},
       {error(file_of(20240520, 2, 4, 4)), "65|DIR/a.bin: version 2 instead of 1" + fix},
       {error(file_of(20240520, 1, 5, 4)),
        "65|DIR/a.bin: the header counts 5 tokens, 1034 bytes in all, but the file has 1032" + fix},
       {error(file_of(20240520, 1, 3, 4)),
        "65|DIR/a.bin: the header counts 3 tokens, 1030 bytes in all, but the file has 1032" + fix},
       {error(file_of(20240520, 1, 4, 4) + "x"),
        "65|DIR/a.bin: the header counts 4 tokens, 1032 bytes in all, but the file has 1033" + fix},
       {error(file_of(20240520, 1, -4, 4)),
        "65|DIR/a.bin: the header counts -4 tokens, 1016 bytes in all, but the file has 1032" + fix}});
}

TEST_F(TokenFiles, ATokenOutsideTheVocabularyIsNamed) {
  TokenFile golden(kGolden);
  EXPECT_EQ(input_error([&] { golden.check_tokens(50257); }),
            "65|tests/data/golden/tokens.bin: token 3 is 65535, but the vocabulary has 50,257 entries|--set "
            "model.vocab=65536 "
            "or more, or give tokens of this vocabulary");
  EXPECT_EQ(input_error([&] { golden.check_tokens(50256); }),  // exactly at the border
            "65|tests/data/golden/tokens.bin: token 0 is 50256, but the vocabulary has 50,256 entries|--set "
            "model.vocab=50257 "
            "or more, or give tokens of this vocabulary");
  std::vector<TokenId> many(200000, 256);
  many[150000] = 257;  // past the first blocks
  write_token_file(*ops_, dir_ / "a.bin", many);
  TokenFile file(dir_ / "a.bin");
  file.check_tokens(258);
  EXPECT_EQ(error_of([&] { file.check_tokens(257); }),
            "65|DIR/a.bin: token 150,000 is 257, but the vocabulary has 257 entries|--set model.vocab=258 or "
            "more, or give "
            "tokens of this vocabulary");
}

TEST_F(TokenFiles, IsComparedWithItsSidecar) {
  write_token_file(*ops_, dir_ / "a.bin", kTokens);
  const auto error = [&](const std::string& sidecar) {
    put("a.bin.json", sidecar);
    return error_of([&] { TokenFile(dir_ / "a.bin").check_sidecar(*ops_, "gpt2"); });
  };
  test::expect_texts(
      {{error(sidecar_text(kTokens, "gpt2")), "no InputError"},
       {error("{\"tokenizer\": \"gpt2\", \"licence\": 3}"), "no InputError"},  // before it had sums
       {error("[\"tokenizer\"]"), "no InputError"},
       {error(sidecar_text(kTokens, "byte")),
        "65|DIR/a.bin: DIR/a.bin.json says \"tokenizer\": \"byte\", and here it is \"gpt2\"|--set "
        "data.tokenizer=\"byte\" (prepare: --tokenizer)"}});
  std::vector<TokenId> others = kTokens;
  others[3] = 1;
  const std::string fix = "|prepare the text anew; or remove that .json, if it is another file's";
  const std::string other = error(sidecar_text(others, "byte"));
  EXPECT_TRUE(other.starts_with("65|DIR/a.bin: DIR/a.bin.json says \"tokens_xxh3\": \"")) << other;
  EXPECT_TRUE(other.ends_with(fix)) << other;
  others.pop_back();
  EXPECT_EQ(error(sidecar_text(others, "gpt2")),
            "65|DIR/a.bin: DIR/a.bin.json says \"tokens\": 6, and here it is 7" + fix);
  EXPECT_TRUE(error("{\"tokens\": 7,").starts_with("65|DIR/a.bin.json:1:"));
}

TEST_F(TokenFiles, IsToldFromTextByItsFirstBytes) {
  EXPECT_TRUE(looks_like_token_file(read_file(*ops_, kGolden)));
  EXPECT_TRUE(looks_like_token_file(file_of(20240801, 7, 0, 0)));
  EXPECT_FALSE(looks_like_token_file("SENSE AND SENSIBILITY"));
  EXPECT_FALSE(looks_like_token_file("abc"));
}

}  // namespace
}  // namespace sc
