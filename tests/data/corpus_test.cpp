#include "common/data/corpus.h"

#include <gtest/gtest.h>

#include "common/base/text.h"
#include "tests/storage/temp_dir.h"
#include "tests/support/answers.h"
#include "tests/support/file_ops_decorators.h"

namespace sc {
namespace {

using test::input_error;
using test::TempDir;

TEST(Corpus, UnpacksOnceToTheTextThatSourceMdNames) {
  const TempDir cache;
  const auto disk = posix_file_ops(Syncing::skip);
  CountingFileOps ops(*disk);
  const Path path = austen_text(ops, cache / "new/cache");
  const std::string text = read_file(*disk, path);
  EXPECT_EQ(text.size(), 4025029U);
  EXPECT_EQ(hex_sha256(text), kAustenSha256);
  EXPECT_EQ(text.substr(0, 22), "SENSE AND SENSIBILITY\n");
  for (const char* title : {"PRIDE AND PREJUDICE", "MANSFIELD PARK", "EMMA", "NORTHANGER ABBEY"}) {
    EXPECT_NE(text.find(title), std::string::npos) << title;
  }
  const std::int64_t writes = ops.of(FileOp::write).calls;
  EXPECT_EQ(austen_text(ops, cache / "new/cache"), path);
  EXPECT_EQ(ops.of(FileOp::write).calls, writes);  // found, not unpacked again
}

TEST(Corpus, ADamagedCopyIsReplaced) {
  const TempDir cache;
  const auto ops = posix_file_ops(Syncing::skip);
  ops->create(cache / "austen.txt")->append(as_bytes("SENSE AND"));
  EXPECT_EQ(hex_sha256(read_file(*ops, austen_text(*ops, cache.path()))), kAustenSha256);
}

TEST(Corpus, DamagedGzipIsRefused) {
  const auto ops = posix_file_ops();
  const std::string packed = read_file(*ops, austen_archive());
  const std::string fix = "|restore the file: git checkout -- common/data/corpus";
  const auto error = [](const std::string& bytes) {
    return input_error([&] { unpack_gzip(bytes, "a.gz"); });
  };
  test::expect_texts(
      {{error(packed.substr(0, 1000)), "65|a.gz: cut off after 1000 bytes" + fix},
       {error(""), "65|a.gz: cut off after 0 bytes" + fix},
       {error("plain text"), "65|a.gz: not gzip or damaged at byte 2: incorrect header check" + fix}});
  std::string flipped = packed;
  flipped[flipped.size() - 6] ^= 1;  // the checksum
  EXPECT_EQ(error(flipped), "65|a.gz: not gzip or damaged at byte 1469426: incorrect data check" + fix);
}

}  // namespace
}  // namespace sc
