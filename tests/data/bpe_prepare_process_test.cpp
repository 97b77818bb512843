// Tests the program `prepare` as a process: exit codes, messages, files.
#include <gtest/gtest.h>
#include <stdlib.h>

#include "common/data/prepare/parquet.h"
#include "common/data/token_file.h"
#include "tests/storage/temp_dir.h"
#include "tests/support/command.h"

namespace sc {
namespace {

class PrepareProcess : public test::InTempDir {
 protected:
  /// Runs `prepare <arguments>` in the temporary directory.
  sc::test::Outcome run_prepare(const std::string& arguments) {
    return sc::test::run_command("cd '" + dir_.path().string() + "' && " PREPARE_PROGRAM " " + arguments);
  }
  void expect(const std::string& arguments, int code, const std::string& output) {
    const sc::test::Outcome run = run_prepare(arguments);
    EXPECT_EQ(run.code, code) << arguments;
    EXPECT_EQ(run.text, output) << arguments;
  }
};

TEST_F(PrepareProcess, TextBecomesATokenFileWithASidecar) {
  put("a.txt", "Hello world");
  expect("a.txt --out out.bin --licence 'CC0, the author'", 0,
         "a.txt: text, 11 B, 1 document, 2 tokens\n"
         "wrote out.bin: 2 tokens of gpt2 (vocabulary 50,257), and out.bin.json\n");
  const TokenFile file(dir_ / "out.bin");
  EXPECT_EQ(std::vector<TokenId>(file.tokens().begin(), file.tokens().end()),
            (std::vector<TokenId>{15496, 995}));
  EXPECT_EQ(read_file(*ops_, dir_ / "out.bin.json"),
            R"({
  "tokens": 2,
  "tokens_xxh3": "c662f54f911f1596",
  "tokenizer": "gpt2",
  "tokens_sha256": "8b0afc49bdba77a617df3fe4699904b2ac6446594294c4f63a2bfaeeb4a10213",
  "vocabulary": 50257,
  "end_of_text": 50256,
  "documents": 1,
  "licence": "CC0, the author",
  "command": "prepare a.txt --out out.bin --licence 'CC0, the author'",
  "sources": [
    {
      "path": "a.txt",
      "format": "text",
      "bytes": 11,
      "sha256": "64ec88ca00b268e5ba1a35678a1b5316d212f4f366b2477232534a8aeca37f3c",
      "documents": 1,
      "tokens": 2,
      "bytes_not_utf8": 0
    }
  ]
}
)");
}

TEST_F(PrepareProcess, TheNovelsOfThisRepository) {
  const sc::test::Outcome run = run_prepare("austen --out austen.bin");
  EXPECT_EQ(run.code, 0);
  EXPECT_EQ(run.text,
            "austen: text, 4.03 MB, 1 document, 993,328 tokens\n"
            "wrote austen.bin: 993,328 tokens of gpt2 (vocabulary 50,257), and austen.bin.json\n");
}

TEST_F(PrepareProcess, HelpShowsTwoExamples) {
  const sc::test::Outcome run = run_prepare("--help");
  EXPECT_EQ(run.code, 0);
  EXPECT_NE(run.text.find("\n  prepare notes/ --out notes.bin"), std::string::npos);
  EXPECT_NE(run.text.find("\n  prepare wiki.train.raw --out"), std::string::npos);
}

TEST_F(PrepareProcess, ABadCommandLineIsRefusedOnce) {
  put("a.txt", "x");
  expect("", 64, "error: command line: no input\n  fix: prepare my.txt --out my.bin\n");
  expect("a.txt", 64, "error: command line: --out is missing\n  fix: --out FILE.bin\n");
  expect("a.txt --out", 64,
         "error: command line: Option 'out' is missing an argument\n  fix: prepare --help\n");
  expect("a.txt --out x --out y", 64, "error: --out: given twice\n  fix: give it once\n");
  expect("a.txt --out x --licnce y", 64,
         "error: --licnce: there is no such flag; did you mean --licence?\n  fix: prepare --help\n");
  expect("a.txt --out x --tokenizer gpt3", 64,
         "error: --tokenizer gpt3: not a tokenizer\n  fix: --tokenizer gpt2, or --tokenizer byte\n");
  expect("a.txt --out x --format txt", 64, "error: --format txt: not a format\n  fix: --format text\n");
}

TEST_F(PrepareProcess, BadInputAndOutputAreRefusedOnce) {
  put("empty.txt", "");
  put("a.txt", "x");
  put("there.bin", "x");
  expect("empty.txt --out x.bin", 65, "error: empty.txt: is empty\n  fix: leave it out\n");
  expect("a.txt --out there.bin", 73,
         "error: there.bin: is there already\n  fix: --replace, or another --out\n");
  expect("a.txt --format parquet --python /no/python --out x.bin", 69,
         "error: a.txt: parquet needs Python with pyarrow, and /no/python is not there\n"
         "  fix: common/data/prepare/setup_parquet.sh\n");
  EXPECT_EQ(run_prepare("a.txt --out a.txt/x.bin").code, 73);
  EXPECT_EQ(ops_->list(dir_.path()), (std::vector<std::string>{"a.txt", "empty.txt", "there.bin"}));
}

TEST_F(PrepareProcess, ParquetIsReadByThePythonOfSetupParquet) {
  const Path python = prepare::default_python();
  if (ops_->kind(python) != PathKind::file) {
    GTEST_SKIP() << python.string() << " is not there: common/data/prepare/setup_parquet.sh installs it, and "
                 << "tests/run.sh --all does";
  }
  const Path archive = "tests/data/golden/bpe_texts.parquet";
  const std::string file = std::filesystem::absolute(archive).string();
  const sc::test::Outcome run = run_prepare("'" + file + "' --tokenizer byte --out x.bin");
  EXPECT_EQ(run.code, 0) << run.text;
  const TokenFile tokens(dir_ / "x.bin");
  EXPECT_EQ(std::vector<TokenId>(tokens.tokens().begin(), tokens.tokens().end()),
            (std::vector<TokenId>{'o', 'n', 'e', 256, 't', 'w', 'o', 256, 0xC3, 0xA9}));
  expect("'" + file + "' --column id --out y.bin", 65,
         "error: " + file + ": column \"id\" holds int64, not text\n  fix: --column NAME, one of id, text\n");
  expect("'" + file + "' --column words --out y.bin", 65,
         "error: " + file + ": has no column \"words\"; it has id, text\n  fix: --column NAME\n");
  put("bad.parquet", "PAR1 and nothing of the kind");
  const sc::test::Outcome bad = run_prepare("bad.parquet --out y.bin");
  EXPECT_EQ(bad.code, 65);
  EXPECT_EQ(bad.text.substr(0, 46), "error: bad.parquet: not a parquet file: Parque") << bad.text;
}

}  // namespace
}  // namespace sc
