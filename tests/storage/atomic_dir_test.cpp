// Tests atomic files and directories, stopped at every system call and with every loss that a crash may
// cause.
#include "common/storage/atomic_dir.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <map>

#include "tests/storage/temp_dir.h"
#include "tests/support/crashing_file_ops.h"
#include "tests/support/file_ops_decorators.h"

namespace sc {
namespace {

using test::TempDir;
using Content = std::map<std::string, std::string>;  // file name -> content; "" alone: absent
using AtomicFile = test::InTempDir;
using AtomicDirectory = test::InTempDir;
using CrashModel = test::InTempDir;

/// The content at a path: of a file {"": content}, of a directory its files by name, of nothing {}.
Content content_of(FileOps& ops, const Path& path) {
  Content content;
  if (ops.kind(path) == PathKind::file) content[""] = read_file(ops, path);
  if (ops.kind(path) == PathKind::directory) {
    for (const std::string& name : ops.list(path)) content[name] = read_file(ops, path / name);
  }
  return content;
}

struct Trial {
  std::function<void(FileOps&, const Path&)> prepare;  // the old state, durable
  std::function<void(FileOps&, const Path&)> attempt;  // what may crash
  Content before, after;
};

/// Runs `trial` with a crash at each mutating call. The target must be old or new, and new once the attempt
/// has returned; a later attempt must succeed and leave nothing beside the target. Returns the number of
/// crash points after which the new content was there.
int check_every_crash_point(const Trial& trial) {
  const auto disk = posix_file_ops(Syncing::skip);
  int new_content = 0;
  for (const CrashLoss& loss : kCrashLosses) {
    for (std::int64_t point = 0;; ++point) {
      const TempDir dir;
      const Path target = dir / "target";
      trial.prepare(*disk, target);
      CrashingFileOps crashing(*disk, point, loss);
      bool returned = false;
      try {
        trial.attempt(crashing, target);
        returned = true;
      } catch (const Crash&) {
      }
      const Content found = content_of(*disk, target);
      EXPECT_TRUE(found == trial.before || found == trial.after)
          << "crash at call " << point << ", data " << static_cast<int>(loss.data) << ", names "
          << static_cast<int>(loss.names);
      if (returned && !crashing.crashed()) {
        EXPECT_EQ(found, trial.after);
        EXPECT_EQ(crashing.calls(), point);
        // The attempt has returned, so its result must survive a crash at the very next call.
        EXPECT_THROW(crashing.make_dir(dir / "next"), Crash);
        EXPECT_EQ(content_of(*disk, target), trial.after) << "data " << static_cast<int>(loss.data);
        break;
      }
      if (found == trial.after) ++new_content;
      trial.attempt(*disk, target);
      EXPECT_EQ(content_of(*disk, target), trial.after);
      EXPECT_EQ(disk->list(dir.path()), std::vector<std::string>{"target"})
          << "leftovers after call " << point;
    }
  }
  return new_content;
}

void write_new_file(FileOps& ops, const Path& target) {
  atomic_write_file(ops, target, [](File& file) {
    file.append(as_bytes("new content, "));
    file.append(as_bytes("second part"));
  });
}

void write_new_dir(FileOps& ops, const Path& target) {
  AtomicDir out(ops, target, AtomicDir::Existing::replace);
  out.write_file("a", [](File& file) { file.append(as_bytes("new a")); });
  out.write_file("c", [](File& file) { file.append(as_bytes("new c")); });
  out.commit();
}

// Without file locks nobody can tell whether the writer of a leftover file lives, so that file stays; a
// leftover directory is still removed.
TEST_F(AtomicFile, WithoutLocksAllIsWritten) {
  FaultyFileOps no_locks(*ops_, {.op = FileOp::lock, .error = ENOSYS, .lasting = true});
  ops_->create(dir_ / ".file.tmp-0");
  ops_->make_dir(dir_ / ".target.tmp-0");
  ops_->create(dir_ / ".target.tmp-0/a");
  for (int i = 0; i < 2; ++i) {
    write_new_file(no_locks, dir_ / "file");
    write_new_dir(no_locks, dir_ / "target");
  }
  EXPECT_EQ(content_of(*ops_, dir_ / "target"), (Content{{"a", "new a"}, {"c", "new c"}}));
  EXPECT_EQ(ops_->list(dir_.path()), (std::vector<std::string>{".file.tmp-0", "file", "target"}));
}

TEST_F(AtomicFile, EveryCrashLeavesNothingOrAll) {
  EXPECT_GT(check_every_crash_point(
                {[](FileOps&, const Path&) {}, write_new_file, {}, {{"", "new content, second part"}}}),
            0);
}

TEST_F(AtomicFile, EveryCrashLeavesTheOldOrTheNewFile) {
  EXPECT_GT(check_every_crash_point(
                {[](FileOps& ops, const Path& target) { ops.create(target)->append(as_bytes("old")); },
                 write_new_file,
                 {{"", "old"}},
                 {{"", "new content, second part"}}}),
            0);
}

TEST_F(AtomicDirectory, EveryCrashLeavesNothingOrAll) {
  EXPECT_GT(check_every_crash_point(
                {[](FileOps&, const Path&) {}, write_new_dir, {}, {{"a", "new a"}, {"c", "new c"}}}),
            0);
}

TEST_F(AtomicDirectory, EveryCrashLeavesTheOldOrTheNewDirectory) {
  const auto prepare = [](FileOps& ops, const Path& target) {
    ops.make_dir(target);
    ops.create(target / "a")->append(as_bytes("old a"));
    ops.create(target / "b")->append(as_bytes("old b"));
  };
  EXPECT_GT(check_every_crash_point(
                {prepare, write_new_dir, {{"a", "old a"}, {"b", "old b"}}, {{"a", "new a"}, {"c", "new c"}}}),
            0);
}

// Without syncs, some crash must tear the target; otherwise the crash model could not find a missing sync.
TEST_F(CrashModel, FindsAMissingFileSync) {
  CrashingFileOps crashing(*ops_, 4, {CrashLoss::Data::lost, CrashLoss::Names::kept});
  crashing.create(dir_ / "tmp")->append(as_bytes("content"));
  crashing.rename(dir_ / "tmp", dir_ / "target");
  crashing.sync_dir(dir_.path());
  EXPECT_THROW(crashing.remove(dir_ / "other"), Crash);
  EXPECT_EQ(content_of(*ops_, dir_ / "target"), (Content{{"", ""}}));
}

TEST_F(CrashModel, WhatADirectoryTookAlongStaysGone) {
  ops_->make_dir(dir_ / "old");
  ops_->create(dir_ / "old" / "a")->append(as_bytes("content"));
  CrashingFileOps crashing(*ops_, 3);
  remove_tree(crashing, dir_ / "old");
  crashing.sync_dir(dir_.path());
  EXPECT_THROW(crashing.make_dir(dir_ / "next"), Crash);
  EXPECT_TRUE(ops_->list(dir_.path()).empty());
}

TEST_F(CrashModel, FindsAMissingDirectorySync) {
  ops_->create(dir_ / "target")->append(as_bytes("old"));
  CrashingFileOps crashing(*ops_, 4, {CrashLoss::Data::kept, CrashLoss::Names::lost});
  {
    const auto file = crashing.create(dir_ / "tmp");
    file->append(as_bytes("content"));
    file->sync();
  }
  crashing.rename(dir_ / "tmp", dir_ / "target");
  EXPECT_THROW(crashing.sync_dir(dir_.path()), Crash);
  EXPECT_EQ(content_of(*ops_, dir_ / "target"), (Content{{"", "old"}}));
  EXPECT_EQ(ops_->list(dir_.path()), std::vector<std::string>{"target"});
  EXPECT_THROW((void)crashing.create(dir_ / "more"), Crash);
}

TEST_F(CrashModel, OverwritesWithoutSyncAreUndoneOrZeroed) {
  for (const auto data : {CrashLoss::Data::kept, CrashLoss::Data::lost, CrashLoss::Data::zeroed}) {
    const TempDir dir;
    ops_->create(dir / "a")->append(as_bytes("0123456789"));
    CrashingFileOps crashing(*ops_, 2, {data, CrashLoss::Names::kept});
    const auto file = crashing.open_write(dir / "a");
    file->write_at(as_bytes("AB"), Bytes(1));
    file->write_at(as_bytes("CDEF"), Bytes(8));
    EXPECT_THROW(file->write_at(as_bytes("xy"), Bytes(0)), Crash);
    const std::string found = read_file(*ops_, dir / "a");
    const std::string expected = data == CrashLoss::Data::kept
                                     ? "xAB34567CDEF"  // half of the last write arrived
                                 : data == CrashLoss::Data::lost ? "0123456789"
                                                                 : std::string("0123456789\0\0", 12);
    EXPECT_EQ(found, expected);
  }
}

TEST_F(CrashModel, ARemovedFileComesBackWithItsDurableContent) {
  ops_->create(dir_ / "a")->append(as_bytes("durable"));
  CrashingFileOps crashing(*ops_, 2, {CrashLoss::Data::lost, CrashLoss::Names::lost});
  crashing.open_write(dir_ / "a")->append(as_bytes(" and not"));
  crashing.remove(dir_ / "a");
  EXPECT_THROW(crashing.sync_dir(dir_.path()), Crash);
  EXPECT_EQ(read_file(*ops_, dir_ / "a"), "durable");
}

TEST_F(AtomicFile, AFullDiskLeavesTheOldContentAndNoLeftovers) {
  ops_->create(dir_ / "target")->append(as_bytes("old"));
  FaultyFileOps full(*ops_, {.op = FileOp::write, .nth = 1, .error = ENOSPC, .lasting = true});
  EXPECT_EQ(error_of([&] { write_new_file(full, dir_ / "target"); }),
            "73|DIR/.target.tmp-0: cannot write 6 bytes at byte 18: No space left on device (ENOSPC)|free "
            "space on the file "
            "system that holds it, or write elsewhere");
  EXPECT_EQ(read_file(*ops_, dir_ / "target"), "old");
  EXPECT_EQ(ops_->list(dir_.path()), std::vector<std::string>{"target"});
}

TEST_F(AtomicFile, MakesItsParentsAndRefusesADirectory) {
  atomic_write_file(*ops_, dir_ / "x/y/target", "text");
  EXPECT_EQ(read_file(*ops_, dir_ / "x/y/target"), "text");
  EXPECT_EQ(error_of([&] { atomic_write_file(*ops_, dir_ / "x", "text"); }),
            "73|DIR/x: is a directory, and a file is to be written|give the path of a file");
}

TEST_F(AtomicFile, ANewOneIsWrittenOnce) {
  EXPECT_TRUE(atomic_write_new(*ops_, dir_ / "x/target", "first"));
  EXPECT_FALSE(atomic_write_new(*ops_, dir_ / "x/target", "second"));
  EXPECT_EQ(read_file(*ops_, dir_ / "x/target"), "first");
  std::filesystem::create_symlink("nowhere", (dir_ / "x/link").string());
  ops_->make_dir(dir_ / "x/directory");
  for (const char* taken : {"x/link", "x/directory"})
    EXPECT_FALSE(atomic_write_new(*ops_, dir_ / taken, "new"));
  EXPECT_EQ(ops_->list(dir_ / "x"), (std::vector<std::string>{"directory", "link", "target"}));
}

TEST_F(AtomicFile, TwoWritersOfOneTargetDoNotDisturbEachOther) {
  atomic_write_file(*ops_, dir_ / "target", [&](File& outer) {
    outer.append(as_bytes("outer"));
    atomic_write_file(*ops_, dir_ / "target", "inner");
    EXPECT_EQ(read_file(*ops_, dir_ / "target"), "inner");
  });
  EXPECT_EQ(read_file(*ops_, dir_ / "target"), "outer");
  EXPECT_EQ(ops_->list(dir_.path()), std::vector<std::string>{"target"});
}

TEST_F(AtomicDirectory, RefusesWhatIsThere) {
  ops_->make_dir(dir_ / "target");
  ops_->create(dir_ / "file");
  const auto open = [&](const std::string& name, AtomicDir::Existing existing) {
    return error_of([&] { AtomicDir(*ops_, dir_ / name, existing); });
  };
  EXPECT_EQ(
      open("target", AtomicDir::Existing::refuse),
      "73|DIR/target: is there already and would be overwritten|name another directory or remove this one");
  EXPECT_EQ(open("file", AtomicDir::Existing::replace),
            "73|DIR/file: is not a directory, so none can take its place|name another directory or remove "
            "this file");
  EXPECT_EQ(open("target", AtomicDir::Existing::replace), "no InputError");
}

TEST_F(AtomicDirectory, WithoutCommitNothingStays) {
  {
    AtomicDir out(*ops_, dir_ / "target", AtomicDir::Existing::refuse);
    out.write_file("a", [](File& file) { file.append(as_bytes("a")); });
    EXPECT_EQ(out.path(), dir_ / ".target.tmp-0");
  }
  EXPECT_TRUE(ops_->list(dir_.path()).empty());
}

}  // namespace
}  // namespace sc
