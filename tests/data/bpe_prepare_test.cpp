#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/base/text.h"
#include "common/data/bpe_tokenizer.h"
#include "common/data/dataset.h"
#include "common/data/prepare/parquet.h"
#include "common/data/prepare/prepare.h"
#include "tests/storage/temp_dir.h"
#include "tests/support/answers.h"
#include "tests/support/file_ops_decorators.h"
#include "tests/support/json_values.h"

namespace sc::prepare {
namespace {

using sc::test::input_error;
using Parts = std::vector<std::string_view>;
using Ids = std::vector<TokenId>;
constexpr TokenId kEnd = ByteTokenizer::kEndOfText;

class PrepareTest : public sc::test::InTempDir {
 protected:
  PrepareTest() {
    options_.out = dir_ / "out.bin";
    options_.tokenizer = "byte";
    options_.python = dir_ / "python";
    options_.command = "prepare";
  }
  void put(const std::string& name, std::string_view content) {
    make_dirs(*ops_, (dir_ / name).parent_path());
    ops_->create(dir_ / name)->append(as_bytes(content));
    options_.inputs = {(dir_ / name).string()};
  }
  void put_ids(const std::string& name, const Ids& ids) {
    write_token_file(*ops_, dir_ / name, ids);
    options_.inputs = {(dir_ / name).string()};
  }
  Prepared tokens() { return tokenize(*ops_, options_, *make_tokenizer(options_.tokenizer)); }
  std::string text() {
    std::string text;
    for (const TokenId id : tokens().tokens) text += id == kEnd ? '|' : static_cast<char>(id);
    return text;
  }
  std::string error() {
    return error_of([&] { run(*ops_, options_, log_); });
  }

  Options options_;
  std::ostringstream log_;
};

TEST(WikiText, HeadingsBetweenBlankLinesBeginArticles) {
  const std::string text =
      " \n = One = \n \n Text . \n \n = = Part = = \n \n More . \n \n = Two = 2 = \n \n Text . \n"
      " = Not a heading = \n \n = Nor this = \n Text . \n";
  const Parts articles = wikitext_articles(text);
  ASSERT_EQ(articles.size(), 2U);
  EXPECT_EQ(articles[0], " \n = One = \n \n Text . \n \n = = Part = = \n \n More . \n \n");
  EXPECT_EQ(articles[1].substr(0, 13), " = Two = 2 = ");
  EXPECT_EQ(std::string(articles[0]).append(articles[1]), text);
  EXPECT_EQ(wikitext_articles("no heading"), Parts{"no heading"});
  EXPECT_EQ(wikitext_articles(" =  = \n"), Parts{" =  = \n"});
  EXPECT_TRUE(wikitext_articles("").empty());
}

TEST(SplitAt, SeparatorsAreRemoved) {
  EXPECT_EQ(split_at("a<>b<>", "<>"), (Parts{"a", "b", ""}));
  EXPECT_EQ(split_at("a<>b", ""), Parts{"a<>b"});
}

TEST_F(PrepareTest, EndOfTextStandsBetweenDocuments) {
  put("a.txt", "one;two;;three");
  EXPECT_EQ(text(), "one;two;;three");
  options_.separator = ";";
  EXPECT_EQ(text(), "one|two|three");
  options_.inputs = {options_.inputs[0], options_.inputs[0]};
  EXPECT_EQ(text(), "one|two|three|one|two|three");
  EXPECT_EQ(tokens().sources[1].documents, 3);
}

// In a text like TinyStories the line end after the last mark is no document; without --separator the marks
// are text.
TEST_F(PrepareTest, MarksBetweenDocuments) {
  put("a.txt", "one\n<|endoftext|>\ntwo\n<|endoftext|>\n");
  const auto note = [&](const std::string& name) {
    const std::string path = (dir_ / name).string();
    return std::vector<std::string>{"<|endoftext|> stands 2 times in " + path +
                                    ", and is trained as text: prepare " + path +
                                    " --separator '<|endoftext|>' makes documents"};
  };
  EXPECT_EQ(tokens().sources[0].notes, note("a.txt"));
  options_.separator = "<|endoftext|>";
  EXPECT_EQ(text(), "one\n|\ntwo\n");
  EXPECT_TRUE(tokens().sources[0].notes.empty());
  options_.separator.clear();
  put("b.jsonl", "{\"text\": \"one<|endoftext|><|endoftext|>\"}\n{\"text\": \"\\n\"}\n");
  options_.inputs.push_back((dir_ / "a.txt").string());
  const Prepared both = tokens();
  EXPECT_EQ(both.sources[0].notes, note("b.jsonl"));
  EXPECT_EQ(both.sources[0].documents, 2);
  EXPECT_EQ(both.sources[1].notes, note("a.txt"));
  options_.separator = "<|endoftext|>";  // which would be read of one of them
  EXPECT_EQ(
      error(),
      "65|DIR/b.jsonl: is jsonl, which has documents of its own|leave --separator out, or --format text");
}

TEST_F(PrepareTest, OneTextGivesTheTokensOfTheDataFlag) {
  options_.tokenizer = "gpt2";
  put("a.txt", "It is a truth universally acknowledged,\n\nthat a single man ...");
  const auto tokenizer = make_tokenizer("gpt2");
  const TokenFile cached(tokenize_once(*ops_, options_.inputs[0], *tokenizer, Packing::pack, dir_ / "cache"));
  run(*ops_, options_, log_);
  const TokenFile prepared(options_.out);
  EXPECT_EQ(Ids(prepared.tokens().begin(), prepared.tokens().end()),
            Ids(cached.tokens().begin(), cached.tokens().end()));
}

TEST_F(PrepareTest, FoldersAreReadInTheOrderOfTheirPaths) {
  put("in/b.txt", "second");
  put("in/a/z.txt", "first");
  put("in/c.txt", "");
  put("in/notes.md", "never");
  options_.inputs = {(dir_ / "in").string()};
  EXPECT_EQ(error(), "65|DIR/in/c.txt: is empty|leave it out");
  put("in/c.txt", "third");
  options_.inputs = {(dir_ / "in").string()};
  EXPECT_EQ(text(), "first|second|third");
  EXPECT_EQ(tokens().sources[0].path, (dir_ / "in/a/z.txt").string());
}

// Folders that are links are read, each folder once: one link leads up, another to a folder that is read
// anyway.
TEST_F(PrepareTest, LinkedFoldersAreReadOnce) {
  put("elsewhere/z.txt", "4");
  put("in/a.txt", "1");
  put("in/sub/b.txt", "2");
  std::filesystem::create_directory_symlink("..", dir_ / "in/sub/loop");
  std::filesystem::create_directory_symlink("../elsewhere", dir_ / "in/linked");
  std::filesystem::create_directory_symlink("sub", dir_ / "in/twice");
  options_.inputs = {(dir_ / "in").string()};
  EXPECT_EQ(text(), "1|4|2");
}

TEST_F(PrepareTest, NothingIsWrittenWhereTheSidecarCannotBe) {
  put("a.txt", "text");
  std::filesystem::create_symlink("elsewhere", dir_ / "out.bin.json");
  EXPECT_EQ(error().substr(0, 45), "64|DIR/out.bin.json: is a symbolic link, and ");
  EXPECT_EQ(ops_->kind_of_name(options_.out), PathKind::absent);
}

// Documents depend neither on the line ends of the system that wrote the file nor on a byte order mark.
TEST_F(PrepareTest, MarksAndLineEndsChangeNoDocument) {
  const auto windows = [](std::string text) {
    for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2) text.insert(at, "\r");
    return text;
  };
  const std::string mark = "\xef\xbb\xbf";
  const std::string wiki = " = One = \n \n Text . \n \n = Two = \n \n Text . \n \n = Three = \n \n Text . \n";
  const std::string parts = "one\n---\ntwo\n---\nthree\n";
  for (const bool marked : {false, true}) {
    for (const bool crlf : {false, true}) {
      const auto written = [&](const std::string& text) {
        return (marked ? mark : "") + (crlf ? windows(text) : text);
      };
      put("wiki.train.raw", written(wiki));
      const Prepared articles = tokens();
      EXPECT_EQ(articles.sources[0].documents, 3) << marked << crlf;
      EXPECT_EQ(articles.tokens[0], ' ') << "the mark is no token";
      EXPECT_EQ(articles.sources[0].notes.size(), crlf ? 1U : 0U);
      put("a.txt", written(parts));
      for (const char* separator : {"\n---\n", "---\n", "---"}) {
        options_.separator = separator;
        EXPECT_EQ(tokens().sources[0].documents, 3) << marked << crlf << separator;
      }
      EXPECT_EQ(text().substr(0, 3), "one");
      options_.separator.clear();
    }
  }
  put("a.txt", "a\r\nb\nc\r\n");
  EXPECT_EQ(tokens().sources[0].notes[0].substr(0, 25), "2 of 3 lines end in CR LF");
  options_.format = Format::wikitext;
  EXPECT_EQ(tokens().sources[0].notes[1].substr(0, 22), "fewer than two heading");
}

TEST_F(PrepareTest, LinesOfJson) {
  put("a.jsonl",
      "\xef\xbb\xbf{\"text\": \"one\\n\", \"id\": 1}\r\n\n{\"body\": \"x\", \"text\": \"two\"}\n{\"text\": "
      "null}");
  EXPECT_EQ(text(), "one\n|two");
  put("a.data", "{\"body\": \"x\", \"text\": 3}\n{\"body\": \"y\"}\n");
  EXPECT_EQ(error().substr(0, 42), "65|DIR/a.data: holds lines of JSON, whose ");
  options_.format = Format::jsonl;
  EXPECT_EQ(error(), "65|DIR/a.data:1: \"text\" is no text|--column NAME; texts are in: body");
  options_.column = "body";
  EXPECT_EQ(text(), "x|y");
  options_.column = "none";
  EXPECT_EQ(error(), "65|DIR/a.data:1: \"none\" is not there|--column NAME; texts are in: body");
  put("a.data", "{\"body\": \"x\"}\nno\n");
  options_.column = "body";
  EXPECT_EQ(error().substr(0, 19), "65|DIR/a.data:2:2: ");
  put("a.data", "{\"body\": \"x\"}\n[]\n");
  EXPECT_EQ(error(), "65|DIR/a.data:2: is array, and no object|one JSON object a line; or --format text");
  options_.format = Format::text;
  EXPECT_EQ(text(), "{\"body\": \"x\"}\n[]\n") << "as it stands, where that is asked for";
}

TEST_F(PrepareTest, PointersOfGitLfsAreNamed) {
  const std::string lfs = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 99\n";
  for (const char* name : {"a.txt", "a.bin", "wiki.train.raw", "a.parquet", "a.jsonl"}) {
    for (const Format format :
         {Format::automatic, Format::text, Format::u16, Format::jsonl, Format::tokens, Format::parquet}) {
      put(name, lfs);
      options_.format = format;
      EXPECT_EQ(error().substr(0, 3), "65|");
      EXPECT_NE(error().find("is a pointer of Git LFS and not the file itself, which has 99 bytes"),
                std::string::npos)
          << name << error();
    }
  }
}

TEST_F(PrepareTest, WikiTextIsKnownByItsName) {
  put("wiki.test.raw", " \n = A = \n \n x \n \n = B = \n \n y \n");
  EXPECT_EQ(text(), " \n = A = \n \n x \n \n| = B = \n \n y \n");
  put("other.raw", " \n = A = \n \n x \n \n = B = \n \n y \n");
  EXPECT_EQ(tokens().sources[0].documents, 1);
  options_.format = Format::wikitext;
  EXPECT_EQ(tokens().sources[0].documents, 2);
}

TEST_F(PrepareTest, TokenFilesAreCheckedAndJoined) {
  put_ids("a.bin", {'a', kEnd, 'b'});
  put_ids("b.bin", {kEnd, 'c'});
  put("c.txt", "d");
  options_.inputs = {(dir_ / "a.bin").string(), (dir_ / "b.bin").string(), (dir_ / "a.bin").string(),
                     (dir_ / "c.txt").string()};
  EXPECT_EQ(text(), "a|b|c|a|b|d");
  EXPECT_EQ(tokens().sources[1].documents, 1);
  put_ids("bad.bin", {'a', 257});
  EXPECT_EQ(error(), "65|DIR/bad.bin: token 1 is 257, but byte has 257 ids|--tokenizer gpt2");
  options_.tokenizer = "gpt2";
  EXPECT_EQ(tokens().tokens, (Ids{'a', 257}));
  put_ids("a.bin", {'a', kEnd, 'b'});
  put("a.bin.json", sidecar_text(Ids{'a', kEnd, 'b'}, "byte"));
  options_.inputs = {(dir_ / "a.bin").string()};
  EXPECT_TRUE(error().starts_with(
      "65|DIR/a.bin: DIR/a.bin.json says \"tokenizer\": \"byte\", and here it is \"gpt2\"|"));
  put_ids("bad.bin", {50257});
  EXPECT_EQ(error(),
            "65|DIR/bad.bin: token 0 is 50257, but gpt2 has 50,257 ids|give tokens of GPT-2's vocabulary");
}

TEST_F(PrepareTest, PatternsAreTheShells) {
  options_.inputs = {(dir_ / "a_*.bin").string()};
  EXPECT_EQ(
      error(),
      "65|DIR/a_*.bin: is a pattern that matches no file, or stands in quotes|leave the quotes out: the "
      "shell puts the files' names there");
}

TEST_F(PrepareTest, BareIdsNeedToBeAskedFor) {
  put("train.bin", std::string_view("h\0i\0", 4));
  EXPECT_EQ(error(),
            "65|DIR/train.bin: does not begin as llm.c's token files do|--format u16 if it holds bare 2-byte "
            "ids (nanoGPT's), or --format text");
  options_.format = Format::u16;
  EXPECT_EQ(text(), "hi");
  put("odd.bin", "abc");
  EXPECT_EQ(error(),
            "65|DIR/odd.bin: 3 bytes are not a whole number of 2-byte ids|--format text, or give another "
            "file");
}

TEST_F(PrepareTest, BytesThatAreNotUtf8AreKeptAndReported) {
  put("a.txt", "ab\xFF\xC3(\xED\xA0\x80");
  const Source source = tokens().sources[0];
  EXPECT_EQ(source.wrong_bytes, 5);
  EXPECT_EQ(source.first_wrong_byte, 2);
  EXPECT_EQ(text(), "ab\xFF\xC3(\xED\xA0\x80");
  run(*ops_, options_, log_);
  EXPECT_NE(log_.str().find("note: 5 bytes are not UTF-8, the first is byte 2;"), std::string::npos);
}

TEST_F(PrepareTest, InputsThatAreNoTextAreRefused) {
  put("a.txt", std::string_view("a\0b", 3));
  EXPECT_EQ(
      error(),
      "65|DIR/a.txt: is not text: byte 1 is zero|give UTF-8; for UTF-16: iconv -f UTF-16 -t UTF-8; unpack "
      "what is compressed");
  put("a.txt", ";;");
  options_.separator = ";";
  EXPECT_EQ(error(), "65|DIR/a.txt: holds no text|give a text");
  make_dirs(*ops_, dir_ / "folder");
  options_.inputs = {(dir_ / "folder").string()};
  EXPECT_EQ(error(), "65|DIR/folder: holds no .txt file|name the files, or a folder with .txt files");
  put("folder/wiki.test.raw", "x");
  options_.inputs = {(dir_ / "folder").string()};
  EXPECT_EQ(error(), "65|DIR/folder: holds no .txt file, but wiki.test.raw|DIR/folder/wiki.test.raw");
  options_.inputs = {(dir_ / "absent.txt").string()};
  EXPECT_EQ(error().substr(0, 38), "65|DIR/absent.txt: cannot open: No suc");
}

TEST_F(PrepareTest, TheSidecarNamesSourceTokenizerAndLicence) {
  put("a.txt", "Hello world");
  options_.tokenizer = "gpt2";
  options_.licence = "CC0, \"me\"";
  run(*ops_, options_, log_);
  const auto json = nlohmann::json::parse(read_file(*ops_, dir_ / "out.bin.json"));
  // tokens_sha256 is the sum of the bytes 88 3c e3 03: the ids 15496 and 995.
  EXPECT_EQ(json.at("sources").size(), 1U);
  test::expect_values(json, {{"/tokens", 2},
                             {"/tokens_sha256", hex_sha256("\x88\x3c\xe3\x03")},
                             {"/tokenizer", "gpt2"},
                             {"/vocabulary", 50257},
                             {"/end_of_text", 50256},
                             {"/licence", "CC0, \"me\""},
                             {"/sources/0/sha256", hex_sha256("Hello world")},
                             {"/sources/0/bytes", 11}});
  const TokenFile file(options_.out);
  EXPECT_EQ(Ids(file.tokens().begin(), file.tokens().end()), (Ids{15496, 995}));
}

TEST_F(PrepareTest, AnExistingFileIsReplacedOnlyOnRequest) {
  put("a.txt", "new");
  ops_->create(options_.out)->append(as_bytes("old"));
  EXPECT_EQ(error(), "73|DIR/out.bin: is there already|--replace, or another --out");
  EXPECT_EQ(read_file(*ops_, options_.out), "old");
  options_.replace = true;
  EXPECT_EQ(error(), "no InputError");
  EXPECT_EQ(TokenFile(options_.out).tokens().size(), 3U);
  options_.out = dir_.path();
  EXPECT_EQ(error(), "73|DIR: is a directory, and a file is to be written|give the path of a file");
}

TEST_F(PrepareTest, AFullDiskLeavesTheOldFile) {
  put("a.txt", "new");
  ops_->create(options_.out)->append(as_bytes("old"));
  options_.replace = true;
  FaultyFileOps full(*ops_, {.op = FileOp::write, .error = ENOSPC});
  const std::string said = input_error([&] { run(full, options_, log_); });
  EXPECT_EQ(said.substr(0, 3), "73|") << said;
  EXPECT_EQ(read_file(*ops_, options_.out), "old");
}

TEST_F(PrepareTest, ParquetWithoutItsReaderSaysWhatToRun) {
  put("a.parquet", "PAR1");
  EXPECT_EQ(error(),
            "69|DIR/a.parquet: parquet needs Python with pyarrow, and DIR/python is not "
            "there|common/data/prepare/setup_parquet.sh");
}

std::string frames(const std::string& printf_format) {
  std::string text;
  const std::string error = input_error([&] {
    read_frames({"/bin/sh", "-c", "printf '" + printf_format + "'"}, "x.parquet",
                [&](std::string_view document) { text.append(document).append(";"); });
  });
  return text + (error == "no InputError" ? "" : error);
}

const std::string kZeros = R"(\0\0\0\0\0\0\0)";  // the upper bytes of a length

TEST(Frames, DocumentsArriveUntilTheEnd) {
  EXPECT_EQ(frames(R"(D\3)" + kZeros + R"(abcD\0)" + kZeros + R"(D\1)" + kZeros + R"(dZ\0)" + kZeros),
            "abc;;d;");
}

TEST(Frames, ErrorsOfTheReaderBecomeErrorsHere) {
  EXPECT_EQ(frames(R"(E\7)" + kZeros + R"(bad\nfix)"), "65|x.parquet: bad|fix");
  EXPECT_EQ(frames(R"(M\4)" + kZeros + R"(gone)"), "69|x.parquet: gone|");
}

TEST(Frames, AnEarlyEndIsAnError) {
  const std::string tail =
      "(exit code 0)|see its message above; if pyarrow is damaged, common/data/prepare/setup_parquet.sh";
  test::expect_texts(
      {{frames(R"(D\3)" + kZeros + "ab"), "65|x.parquet: /bin/sh ended before the texts did " + tail},
       {frames(R"(D\377\377\377\377\377\377\377\377ab)"),
        "65|x.parquet: /bin/sh ended before the texts did " + tail},
       {frames(""), "65|x.parquet: /bin/sh ended before the texts did " + tail}});
}

TEST(Frames, AProgramThatDoesNotStartIsMissing) {
  EXPECT_EQ(input_error([] { read_frames({"/no/such/program"}, "x.parquet", [](std::string_view) {}); }),
            "69|x.parquet: cannot start /no/such/program: No such file or "
            "directory|common/data/prepare/setup_parquet.sh");
}

}  // namespace
}  // namespace sc::prepare
