#include "common/data/dataset.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "common/storage/atomic_dir.h"
#include "tests/storage/temp_dir.h"
#include "tests/support/answers.h"
#include "tests/support/file_ops_decorators.h"

namespace sc {
namespace {

class DatasetTest : public test::InTempDir {
 protected:
  DatasetTest() {
    workload_.batch = {.sequence = 4, .global = 2, .micro = 1};
    workload_.data.source = (dir_ / "text.txt").string();
    workload_.data.validation_fraction = 0;
    workload_.data.validation_rows = 2 * workload_.batch.micro;
  }
  std::vector<std::string> notes() {
    std::vector<std::string> notes = open().notes();
    std::erase(notes, "");
    return notes;
  }
  Dataset open() { return Dataset::open(counting_, workload_, dir_ / "cache"); }
  std::string error() {
    return error_of([&] { open(); });
  }
  /// The error for a file with `content` as the text to train on.
  std::string error_of_file(const std::string& name, std::string_view content) {
    put(name, content);
    workload_.data.source = (dir_ / name).string();
    return error();
  }
  std::string error_of_text(std::string_view content) { return error_of_file("text.txt", content); }

  CountingFileOps counting_{*ops_};
  Workload workload_;
};

TEST(Paragraphs, AreRunsOfLinesThatAreNotBlank) {
  test::expect_each<std::vector<std::string_view>>(
      {{paragraphs("one\ntwo\n\nthree\n"), {"one\ntwo", "three"}},
       {paragraphs("\n \t\n\r\n  indented\r\nlines\r\n\r\n\n last"), {"  indented\r\nlines\r", " last"}},
       {paragraphs("x"), {"x"}},
       {paragraphs(""), {}},
       {paragraphs(" \n\n\t\n"), {}}});
}

TEST_F(DatasetTest, TokenisesATextOnceIntoTheCache) {
  put("text.txt", "Hello, world.");
  const Dataset first = open();
  EXPECT_EQ(first.train().num_tokens(), 13);
  EXPECT_EQ(first.train().count(), 3);
  const std::int64_t writes = counting_.of(FileOp::write).calls;
  EXPECT_GT(writes, 0);
  EXPECT_EQ(open().tokens_path(), first.tokens_path());
  EXPECT_EQ(counting_.of(FileOp::write).calls, writes);
  EXPECT_EQ(first.tokens_path().filename(), "f8c3bf62a9aa3e6f-byte-stream-2.bin");  // sha256sum's digits
  put("text.txt", "Hello, worms.");
  EXPECT_NE(open().tokens_path(), first.tokens_path());  // by content, not by name
}

TEST_F(DatasetTest, ADamagedCacheIsMadeAnew) {
  put("text.txt", "Hello, world.");
  const Path path = open().tokens_path(), beside = sidecar_of(path);
  const std::string tokens = read_file(*ops_, path), sidecar = read_file(*ops_, beside);
  const std::string shorter = std::string(tokens).replace(8, 1, "\x0c").substr(0, 1024 + 2 * 12);
  for (const std::string& damaged : {std::string(tokens).replace(1024, 1, "J"), shorter,
                                     tokens.substr(0, 1030), tokens.substr(0, 8), std::string()}) {
    atomic_write_file(*ops_, path, damaged);
    EXPECT_EQ(error(), "no InputError");
    EXPECT_EQ(read_file(*ops_, path), tokens);
  }
  for (const std::string& other : {std::string("{}"), sidecar_text({}, "byte"), std::string("none")}) {
    atomic_write_file(*ops_, beside, other);
    EXPECT_EQ(error(), "no InputError");
    EXPECT_EQ(read_file(*ops_, beside), sidecar);
  }
  ops_->remove(beside);
  EXPECT_EQ(error(), "no InputError");
  EXPECT_EQ(read_file(*ops_, beside), sidecar);
}

// Caches from before a change must not be read after it: if this test fails, the number in tokenize_once()
// must change too.
TEST_F(DatasetTest, TheVersionInTheCachesNamesBelongsToTheseTokens) {
  put("text.txt", "It's  12 o'clock:\r\n\tna\xc3\xafve \xe2\x80\x94 \xff<|endoftext|>\n \n\nend\n");
  std::string sums;
  for (const char* tokenizer : {"byte", "gpt2"}) {
    for (const Packing packing : {Packing::pack, Packing::pad_masked}) {
      const Path made =
          tokenize_once(*ops_, workload_.data.source, *make_tokenizer(tokenizer), packing, dir_ / "cache");
      EXPECT_TRUE(made.string().ends_with("-2.bin"));
      const std::string beside = read_file(*ops_, sidecar_of(made));
      sums += beside.substr(beside.find("xxh3") + 8, 16) + " ";
    }
  }
  EXPECT_EQ(sums, "127fb0f2c569ce4f cca30beba84b19f1 a3aea71f85a7617c f716fd37942b176f ");
}

// A token file that `prepare` made names its tokenizer: another one would read its ids as other texts.
TEST_F(DatasetTest, ATokenFileIsComparedWithItsSidecar) {
  const std::vector<TokenId> tokens = {'a', 'b', 'c', 256, 'd', 'e'};
  write_token_file(*ops_, dir_ / "a.bin", tokens);
  put("a.bin.json", sidecar_text(tokens, "byte"));
  put("text.txt", "a text to train on");
  workload_.model.vocab = 50257;
  workload_.data.validation_rows = 1;
  const auto named = [&](const std::string& data, const std::string& validation) {
    workload_.data.source = (dir_ / data).string();
    const std::string other = validation.empty() ? "" : (dir_ / validation).string();
    return error_of([&] { Dataset::open(counting_, workload_, dir_ / "cache", other); });
  };
  EXPECT_EQ(named("a.bin", ""), "no InputError");
  workload_.data.tokenizer = "gpt2";
  const std::string wanted =
      "65|DIR/a.bin: DIR/a.bin.json says \"tokenizer\": \"byte\", and here it is \"gpt2\"|--set "
      "data.tokenizer=\"byte\" (prepare: --tokenizer)";
  EXPECT_EQ(named("a.bin", ""), wanted);
  EXPECT_EQ(named("text.txt", "a.bin"), wanted);
  EXPECT_EQ(error_of([&] { TestSet(counting_, (dir_ / "a.bin").string(), workload_, dir_ / "cache"); }),
            wanted);
}

TEST_F(DatasetTest, WhatIsLeftOutOrRepeatedIsSaid) {
  using Notes = std::vector<std::string>;
  workload_.batch.global = 12;
  put("text.txt", std::string(44, 'a'));  // 10 rows, 3 tokens
  EXPECT_EQ(notes(), (Notes{"3 of 44 tokens are in no row: the last ones do not fill 4 (batch.sequence)",
                            "a step takes 12 rows of 10: each comes up to 2 times in it"}));
  workload_.batch.global = 10;
  put("text.txt", std::string(404, 'a'));
  EXPECT_TRUE(notes().empty()) << "less than a hundredth is the end of a text";
  const auto test_notes = [&] {
    Notes notes = TestSet(counting_, workload_.data.source, workload_, dir_ / "cache").notes();
    std::erase(notes, "");
    return notes.empty() ? "" : notes.at(0).substr(notes.at(0).find(": ") + 2);
  };
  EXPECT_EQ(test_notes(), "3 of 404 tokens are in no row: the last ones do not fill 4 (batch.sequence)");
  put("text.txt", std::string(405, 'a'));
  EXPECT_EQ(test_notes(), "");
  workload_.data.packing = Packing::pad_masked;
  const std::string cut = "400 of 406 tokens are in no row: documents are cut to 4 (batch.sequence)";
  EXPECT_EQ(notes(), (Notes{cut, "a step takes 10 rows of 1: each comes up to 10 times in it"}));
  EXPECT_EQ(test_notes(), cut);
}

TEST_F(DatasetTest, DocumentsEndWithEndOfText) {
  workload_.data.packing = Packing::pad_masked;
  put("text.txt", "ab\n\ncdefgh\n");
  const Dataset data = open();
  test::expect_counts({{data.train().num_tokens(), 10},
                       {data.train().count(), 2},
                       {data.train().targets(0), 2},
                       {data.train().targets(1), 4}});
}

TEST_F(DatasetTest, TheTailIsForValidation) {
  std::string text(1000, 'a');
  text.replace(900, 100, 100, 'b');
  put("text.txt", text);
  workload_.data.validation_fraction = 0.1;
  const Dataset data = open();
  EXPECT_EQ(data.train().num_tokens(), 900);
  EXPECT_EQ(data.validation().num_tokens(), 100);
  std::vector<std::int64_t> tokens(4), targets(4);
  for (RowIndex row = 0; row < data.train().count(); ++row) {
    data.train().fill(row, tokens, targets);
    EXPECT_EQ(tokens, (std::vector<std::int64_t>(4, 'a')));
    EXPECT_EQ(targets, (std::vector<std::int64_t>(4, 'a')));
  }
  data.validation().fill(0, tokens, targets);
  EXPECT_EQ(tokens, (std::vector<std::int64_t>(4, 'b')));
}

TEST_F(DatasetTest, ReadsTokenFilesByContentOrSuffix) {
  workload_.model.vocab = 50257;
  workload_.data.tokenizer = "gpt2";
  write_token_file(*ops_, dir_ / "text.txt", std::vector<TokenId>{50256, 1, 2, 3, 50256, 4, 5, 6});
  EXPECT_EQ(open().tokens_path(), dir_ / "text.txt");
  workload_.data.packing = Packing::pad_masked;
  EXPECT_EQ(open().train().count(), 2);  // split at 50256
  EXPECT_EQ(
      error_of_file("b.bin", "text"),
      "65|DIR/b.bin: 4 bytes; a token file starts with a header of 1024|if it holds bare 2-byte ids "
      "(nanoGPT's): prepare DIR/b.bin --format u16 --out TOKENS.bin; otherwise give a text file, or a 2-byte "
      "token file of llm.c (magic 20240520, version 1)");
}

TEST_F(DatasetTest, BadSourcesAreRefusedWithTheReason) {
  EXPECT_EQ(error(),
            "65|DIR/text.txt: cannot open: No such file or directory (ENOENT)|check the path (it is relative "
            "to the working "
            "directory)");
  EXPECT_EQ(error_of_text(""), "65|DIR/text.txt: is empty|give a text file with some text in it");
  EXPECT_EQ(error_of_text(std::string_view("text\0text", 9)),
            "65|DIR/text.txt: is not text: byte 4 is zero|give UTF-8; for UTF-16: iconv -f UTF-16 -t UTF-8; "
            "unpack what is compressed");
  workload_.data.tokenizer = "word";
  EXPECT_EQ(
      error_of_text("some text"),
      "64|data.tokenizer: \"word\" cannot turn text into tokens here; this program has: byte, gpt2|--set "
      "data.tokenizer=byte, "
      "or --data with a token file made by that tokenizer");
  workload_.data.source = dir_.path().string();
  EXPECT_EQ(error(),
            "65|DIR: cannot open: Is a directory (EISDIR)|give the path of a file, not of a directory");
}

// The byte order mark at a file's beginning is no text; a note tells of lines that end as on Windows.
TEST_F(DatasetTest, TextsAsOtherSystemsWriteThem) {
  const std::string text = "a line\nand another, long enough for its row.\n", file = workload_.data.source,
                    mark = "\xef\xbb\xbf";
  put("text.txt", text);
  const Path plain = open().tokens_path();
  EXPECT_TRUE(notes().empty());
  put("text.txt", mark + text);
  EXPECT_EQ(open().tokens_path(), plain);
  put("text.txt", mark + "a line\r\nand another, long enough for a row\n");
  EXPECT_EQ(notes().at(0).substr(0, 36), "1 of 2 lines end in CR LF, as on Win");
  EXPECT_NE(open().tokens_path(), plain);
  put("text.txt", "one\n<|endoftext|>\ntwo\n<|endoftext|>\n");
  EXPECT_EQ(notes().at(0), "<|endoftext|> stands 2 times in " + file + ", and is trained as text: prepare " +
                               file + " --separator '<|endoftext|>' makes documents");
  EXPECT_EQ(error_of_text(mark), "65|DIR/text.txt: is empty|give a text file with some text in it");
}

// Each of these files would be trained as it stands without anybody knowing.
TEST_F(DatasetTest, WhatIsNoProseIsRefused) {
  const std::string lfs =
      "version https://git-lfs.github.com/spec/v1\noid "
      "sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";
  const std::string of_lfs =
      "65|DIR/text.txt: is a pointer of Git LFS and not the file itself, which has 12,345 bytes|git "
      "lfs pull, in the "
      "clone that it lies in; or download the file";
  const std::string json = "65|DIR/text.txt: is JSON, wh...", other = "65|DIR/text.txt: is ...",
                    prose = "no InputError";
  test::expect_answers(
      [&](const std::string& content) { return error_of_text(content); },
      {{lfs, of_lfs},
       {"\xef\xbb\xbf" + lfs, of_lfs},
       {"\xef\xbb\xbf\n{\"text\": \"a\", \"meta\": {}}\r\n{\"text\": \"b\"}\r\n",
        "65|DIR/text.txt: holds lines of JSON, whose braces and names would be trained|prepare "
        "DIR/text.txt --format jsonl --column text --tokenizer byte --out FILE.bin; or there --format text, "
        "if it is to be trained as it stands"},
       {"{\n  \"text\": \"a\"\n}\n", json},
       {"[\n  {\"text\": \"a\"},\n  {\"text\": \"b\"}\n]\n", json},
       {"[\"a\", \"b\"]", json},
       {"{\"text\": \"a\"}", json},
       {"[1, 2,\n -3e5]", json},
       {"{ \"cut\" : [1,", json},
       {"%PDF-1.7\nx", other},
       {"<!DOCTYPE HTML>\n<p>a", other},
       {"\n<html lang=en>", other},
       {"<!-- saved -->\n<html>a", other},
       {"<?xml version='1.0'?><a/>", other},
       {"<doc id=\"1\">\nA text.\n</doc>\n", other},
       {"{He said: a text in braces, long enough to train on.}", prose},
       {"[1] A footnote, and what follows it.\n[2] Another]", prose},
       {"version https is no pointer, but a text of some length", prose},
       {"\"{\" is a brace, of which texts may speak", prose},
       {"{ \"Hello\" } she said, and went on to say", prose},
       {"<unk> is a word of WikiText's, and no tag at all", prose},
       {"[1] [2] are notes in a text of some length", prose},
       {"<|endoftext|> is what ends a document of GPT-2", prose}});
  EXPECT_EQ(error_of_file("table.csv", "id,text\n1,hello there\n").substr(0, 29),
            "65|DIR/table.csv: is a table,");
  workload_.data.source = (dir_ / "part_*.bin").string();
  EXPECT_EQ(error(),
            "65|DIR/part_*.bin: is a pattern, and a run reads one file|one file of all that match: prepare "
            "DIR/part_*.bin "
            "--out all.bin, then --data all.bin");
  EXPECT_TRUE(error_of_file("ids.bin", std::string(4000, 'a'))
                  .starts_with("65|DIR/ids.bin: magic 1633771873 instead of 20240520|if it holds bare "
                               "2-byte ids (nanoGPT's): prepare DIR/ids.bin --format u16 --out "));
  EXPECT_EQ(error_of_file("lfs.bin", lfs).substr(0, 45), "65|DIR/lfs.bin: is a pointer of Git LFS and n");
}

TEST_F(DatasetTest, TokensOutsideTheModelsVocabularyAreRefused) {
  workload_.model.vocab = 115;
  const std::string text = error_of_text("hams");
  EXPECT_EQ(text.substr(text.find(": token")),
            ": token 3 is 115, but the vocabulary has 115 entries|--set model.vocab=116 or more, or give "
            "tokens of this "
            "vocabulary");
  workload_.model.vocab = 116;
  workload_.batch.sequence = 3;
  EXPECT_EQ(open().train().count(), 1);
}

TEST_F(DatasetTest, ShortTextsSayHaveNeedAndFix) {
  EXPECT_EQ(error_of_text("four"),
            "65|DIR/text.txt: the training part has 4 tokens, 0 rows of 4; needed: one row, 5 tokens|give a "
            "longer text or a "
            "smaller batch.sequence");
  put("text.txt", "fives");
  EXPECT_EQ(open().train().count(), 1);
  workload_.data.packing = Packing::pad_masked;
  EXPECT_EQ(error_of_text(" \n\n "),
            "65|DIR/text.txt: the training part has 0 tokens in 0 documents; needed: one document|give a "
            "text with at least one "
            "paragraph");
}

TEST_F(DatasetTest, ShortValidationSaysHaveNeedAndFix) {
  workload_.data.validation_fraction = 0.05;
  workload_.data.validation_rows = 6;
  EXPECT_EQ(error_of_text(std::string(200, 'x')),
            "65|DIR/text.txt: the validation part has 10 tokens, 2 rows of 4; needed: 6 "
            "(data.validation_rows)|give a longer text, or --set data.validation_fraction=0.13, or --set "
            "data.validation_rows=2");
  workload_.data.validation_fraction = 0.13;  // the proposal works
  EXPECT_EQ(open().validation().count(), 6);
  workload_.data.validation_fraction = 0.05;
  workload_.data.validation_rows = 2;
  EXPECT_EQ(open().validation().count(), 2);
  workload_.data.validation_rows = 200;
  EXPECT_EQ(error_of_text(std::string(60, 'x')),
            "65|DIR/text.txt: the validation part has 3 tokens, 0 rows of 4; needed: 200 "
            "(data.validation_rows)|give a longer text");
  workload_.data.packing = Packing::pad_masked;
  workload_.data.validation_fraction = 0.5;
  EXPECT_EQ(error_of_text("a\n\nb\n\nc\n\nd\n\ne"),
            "65|DIR/text.txt: the validation part has 5 tokens in 2 documents; needed: 200 "
            "(data.validation_rows)|give a longer text, or --set data.validation_rows=2");
}

TEST_F(DatasetTest, ACacheThatCannotBeWrittenIsExit73) {
  put("cache", "a file where the directory should be");
  EXPECT_EQ(error_of_text("some text"),
            "73|DIR/cache: cannot create the directory: File exists (EEXIST)|something else has that name: "
            "give another one, or move it away; STAGECRAFT_CACHE=DIR keeps what is made of a text elsewhere");
}

TEST_F(DatasetTest, TheDefaultIsAusten) {
  workload_ = Workload{};
  const Dataset data = open();
  test::expect_counts({{data.train().num_tokens() + data.validation().num_tokens(), 4025029},
                       {data.validation().num_tokens(), 201251}});
  EXPECT_EQ(ops_->list(dir_ / "cache"),
            (std::vector<std::string>{"austen.txt", "f2516f2139e3cecf-byte-stream-2.bin",
                                      "f2516f2139e3cecf-byte-stream-2.bin.json"}));
}

}  // namespace
}  // namespace sc
