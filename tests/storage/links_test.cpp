// Tests foreign things where this program writes: links, pipes, other users' files. A canary file behind each
// link must keep its content, whatever is removed or replaced beside it.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>

#include "common/storage/atomic_dir.h"
#include "common/storage/checkpoint/generations.h"
#include "tests/storage/temp_dir.h"

namespace sc {
namespace {

using test::input_error;
using Names = std::vector<std::string>;

class LinksTest : public test::InTempDir {
 protected:
  void SetUp() override {
    ops_->make_dir(dir_ / "precious");
    put("precious/keep", "kept");
    ops_->make_dir(dir_ / "here");
  }
  void TearDown() override {
    EXPECT_EQ(ops_->list(dir_ / "precious"), Names{"keep"});
    EXPECT_EQ(read_file(*ops_, dir_ / "precious/keep"), "kept");
  }
  void link(const std::string& to, const std::string& name) {
    ASSERT_EQ(::symlink(to.c_str(), (dir_ / name).c_str()), 0);
  }
  void pipe(const std::string& name) { ASSERT_EQ(::mkfifo((dir_ / name).c_str(), 0600), 0); }
  [[nodiscard]] Names here() { return ops_->list(dir_ / "here"); }
};

TEST_F(LinksTest, ATreeIsRemovedWithoutWhatItsLinksLeadTo) {
  link("../precious", "here/itself");
  remove_tree(*ops_, dir_ / "here/itself");
  EXPECT_TRUE(here().empty());
  ops_->make_dir(dir_ / "here/tree");
  ops_->make_dir(dir_ / "here/tree/inner");
  link("../../../precious", "here/tree/inner/directory");
  link("../../../precious/keep", "here/tree/inner/file");
  link("nowhere", "here/tree/dangling");
  link("loop", "here/tree/loop");
  pipe("here/tree/pipe");
  remove_tree(*ops_, dir_ / "here/tree");
  EXPECT_TRUE(here().empty());
}

TEST_F(LinksTest, KindsAreOfTheNameOrOfWhatItLeadsTo) {
  link("../precious", "here/directory");
  link("../precious/keep", "here/file");
  link("nowhere", "here/dangling");
  link("loop", "here/loop");
  pipe("here/pipe");
  const std::pair<const char*, std::pair<PathKind, PathKind>> all[] = {
      {"directory", {PathKind::directory, PathKind::link}}, {"file", {PathKind::file, PathKind::link}},
      {"dangling", {PathKind::absent, PathKind::link}},     {"loop", {PathKind::other, PathKind::link}},
      {"pipe", {PathKind::other, PathKind::other}},         {"absent", {PathKind::absent, PathKind::absent}}};
  for (const auto& [name, kinds] : all) {
    const Path path = dir_ / "here" / name;
    EXPECT_EQ(std::pair(ops_->kind(path), ops_->kind_of_name(path)), kinds) << name;
  }
}

TEST_F(LinksTest, NothingIsWrittenOrEmptiedThroughALink) {
  const std::map<std::string, std::string> links = {{"file", "../precious/keep"},
                                                    {"directory", "../precious"},
                                                    {"loop", "loop"},
                                                    {"dangling", "../precious/new"}};
  for (const auto& [name, to] : links) {
    link(to, "here/" + name);
    const Path path = dir_ / "here" / name;
    EXPECT_EQ(
        error_of([&] { atomic_write_file(*ops_, path, "x"); }),
        "64|DIR/here/" + name +
            ": is a symbolic link, and would be replaced|give the path of the file that it leads to, or "
            "remove the link");
    EXPECT_EQ(error_of([&] { ops_->create(path); }).substr(0, 3), "73|") << name;
    EXPECT_EQ(ops_->create_new(path), nullptr) << name;
    EXPECT_EQ(error_of([&] { write_synced_file(*ops_, path, [](File&) {}); }).substr(0, 3), "73|") << name;
  }
  EXPECT_EQ(
      error_of([&] { AtomicDir(*ops_, dir_ / "here/dangling", AtomicDir::Existing::refuse); }).substr(0, 3),
      "73|");
}

// Opening a pipe blocks until its other end is opened, so a program that opened one would hang this test.
TEST_F(LinksTest, NoPipeIsWaitedFor) {
  pipe("here/pipe");
  const Path path = dir_ / "here/pipe";
  const std::string refused = "DIR/here/pipe: is not a regular file (it is a pipe, a device or a socket)|";
  EXPECT_EQ(error_of([&] { ops_->open_read(path); }),
            "65|" + refused + "copy its content to a file and give that");
  EXPECT_EQ(error_of([&] { (void)read_file(*ops_, path); }).substr(0, 3), "65|");
  EXPECT_EQ(error_of([&] { ops_->open_write(path); }), "73|" + refused + "give the path of a file");
  EXPECT_EQ(error_of([&] { ops_->create(path); }).substr(0, 3), "73|");
  EXPECT_EQ(error_of([&] { atomic_write_file(*ops_, path, "x"); }),
            "73|" + refused + "give the path of a file");
  EXPECT_EQ(input_error([&] { ops_->open_read("/dev/zero"); }).substr(0, 3), "65|");
}

TEST_F(LinksTest, LeftoversOfFilesAreOwnFilesOfThatName) {
  link("../precious", "here/.target.tmp-0");
  link("../precious/keep", "here/.target.tmp-1");
  ops_->make_dir(dir_ / "here/.target.tmp-2");
  put("here/.target.tmp-2/keep", "kept");
  pipe("here/.target.tmp-3");
  put("here/.target.tmp-4", "of a crashed writer");
  put("here/.target.tmp-mine", "kept");
  put("here/.target.tmp-", "kept");
  put("here/.target.tmp-5", "of somebody else");
  const bool root = ::geteuid() == 0;
  if (root) {
    ASSERT_EQ(::chown((dir_ / "here/.target.tmp-5").c_str(), 12345, 12345), 0);
  }
  atomic_write_file(*ops_, dir_ / "here/target", "new");
  EXPECT_EQ(read_file(*ops_, dir_ / "here/target"), "new");
  Names kept = {".target.tmp-", ".target.tmp-0", ".target.tmp-1", ".target.tmp-2", ".target.tmp-3"};
  if (root) kept.emplace_back(".target.tmp-5");
  kept.insert(kept.end(), {".target.tmp-mine", "target"});
  EXPECT_EQ(here(), kept);
  EXPECT_EQ(read_file(*ops_, dir_ / "here/.target.tmp-2/keep"), "kept");
}

TEST_F(LinksTest, LeftoversOfCheckpointsHoldTheirFilesAndNothingElse) {
  const auto leftover = [&](const std::string& name, const Names& files) {
    ops_->make_dir(dir_ / "here" / name);
    for (const std::string& file : files) put("here/" + name + "/" + file, "x");
  };
  leftover(".step-000001.tmp-0", {"rank-0000.safetensors", "manifest.json"});  // a crashed save's
  leftover(".step-000002.tmp-removed", {"rank-0000.safetensors"});             // a crashed removal's
  leftover(".step-000003.tmp-0", {});
  leftover(".step-000004.tmp-0", {"keep"});
  leftover(".step-000005.tmp-0", {"rank-0000.safetensors", "keep"});
  leftover(".step-000006.tmp-0x", {});
  leftover(".step-000007.tmp-0", {});
  ops_->make_dir(dir_ / "here/.step-000007.tmp-0/rank-0000.safetensors");  // a directory of a file's name
  leftover(".step-000008.tmp-0", {});
  link("../../precious/keep", "here/.step-000008.tmp-0/rank-0000.safetensors");
  link("../precious", "here/.step-000009.tmp-0");
  put("here/.step-000010.tmp-0", "a file");
  checkpoint::remove_old_generations(*ops_, dir_ / "here", 100, 2);
  EXPECT_EQ(here(),
            (Names{".step-000004.tmp-0", ".step-000005.tmp-0", ".step-000006.tmp-0x", ".step-000007.tmp-0",
                   ".step-000008.tmp-0", ".step-000009.tmp-0", ".step-000010.tmp-0"}));
}

// A checkpoint may be kept elsewhere and linked; only the link belongs to the directory, and only it is
// removed.
TEST_F(LinksTest, AGenerationThatIsALinkIsUnlinked) {
  link("../precious", "here/step-000001");
  ops_->make_dir(dir_ / "here/step-000002");
  link("../../precious", "here/step-000002/directory");
  link("../../precious/keep", "here/step-000002/rank-0000.safetensors");
  link("../../precious/keep", "here/step-000002/named");
  ops_->make_dir(dir_ / "here/step-000003");
  EXPECT_EQ(checkpoint::generations(*ops_, dir_ / "here").size(), 3U);
  checkpoint::remove_old_generations(*ops_, dir_ / "here", 3, 1);
  EXPECT_EQ(here(), Names{"step-000003"});
}

// Files that no run wrote, such as notes, keep an old checkpoint from being removed; a new checkpoint of the
// same name takes them over.
TEST_F(LinksTest, WhatNoRunHasWrittenInAGenerationStays) {
  const auto generation = [&](const std::string& name) {
    ops_->make_dir(dir_ / "here" / name);
    put("here/" + name + "/rank-0000.safetensors", "x");
  };
  for (const char* name : {"step-000001", "step-000002", "step-000003", "step-000004"}) generation(name);
  put("here/step-000001/notes.txt", "kept");
  ops_->make_dir(dir_ / "here/step-000002/plots");
  put("here/step-000002/plots/a.png", "kept");
  const auto stay = checkpoint::remove_old_generations(*ops_, dir_ / "here", 4, 1);
  EXPECT_EQ(here(), (Names{"step-000001", "step-000002", "step-000004"}));
  ASSERT_EQ(stay.size(), 2U);
  EXPECT_EQ(stay[0].path, dir_ / "here/step-000001");
  EXPECT_EQ(stay[0].why, (dir_ / "here/step-000001/notes.txt").string() + ": no run has put it there");
  EXPECT_EQ(ops_->list(dir_ / "here/step-000001"), (Names{"notes.txt", "rank-0000.safetensors"}));
  {
    AtomicDir out(*ops_, dir_ / "here/step-000002", AtomicDir::Existing::replace,
                  checkpoint::is_file_of_checkpoint);
    out.write_file("manifest.json", [](File& file) { file.append(as_bytes("new")); });
    out.commit();
  }
  EXPECT_EQ(here(), (Names{"step-000001", "step-000002", "step-000004"}));
  EXPECT_EQ(ops_->list(dir_ / "here/step-000002"), (Names{"manifest.json", "plots"}));
  EXPECT_EQ(read_file(*ops_, dir_ / "here/step-000002/plots/a.png"), "kept");
}

TEST_F(LinksTest, ANameThatIsTakenIsNotWaitedFor) {
  ops_->make_dir(dir_ / "here/.step-000001.tmp-removed");
  put("here/.step-000001.tmp-removed/keep", "kept");
  link("../precious", "here/.step-000002.tmp-0");
  pipe("here/.step-000002.tmp-1");
  ops_->make_dir(dir_ / "here/step-000001");
  {
    AtomicDir out(*ops_, dir_ / "here/step-000002", AtomicDir::Existing::refuse);
    EXPECT_EQ(out.path(), dir_ / "here/.step-000002.tmp-2");
    out.commit();
  }
  checkpoint::remove_old_generations(*ops_, dir_ / "here", 2, 1);
  EXPECT_EQ(here(),
            (Names{".step-000001.tmp-removed", ".step-000002.tmp-0", ".step-000002.tmp-1", "step-000002"}));
  EXPECT_EQ(read_file(*ops_, dir_ / "here/.step-000001.tmp-removed/keep"), "kept");
}

// A directory that a user names may be a link, for example to a larger disk.
TEST_F(LinksTest, DirectoriesAreFollowed) {
  ops_->make_dir(dir_ / "large");
  link("large", "runs");
  atomic_write_file(*ops_, dir_ / "runs/x/file", "x");
  EXPECT_EQ(read_file(*ops_, dir_ / "large/x/file"), "x");
  {
    AtomicDir out(*ops_, dir_ / "runs/y", AtomicDir::Existing::refuse);
    out.write_file("a", [](File& file) { file.append(as_bytes("a")); });
    out.commit();
  }
  EXPECT_EQ(ops_->list(dir_ / "large"), (Names{"x", "y"}));
  remove_tree(*ops_, dir_ / "runs/x");
  EXPECT_EQ(ops_->list(dir_ / "large"), Names{"y"});
}

}  // namespace
}  // namespace sc
