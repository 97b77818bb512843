// Atomic files and directories, stopped at every call they make and under every kind of loss.
#include "common/storage/atomic_dir.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <map>

#include "tests/storage/temp_dir.h"
#include "tests/support/crashing_file_ops.h"
#include "tests/support/file_ops_decorators.h"

namespace sc {
namespace {

using test::input_error;
using test::TempDir;
using Content = std::map<std::string, std::string>;  // file name -> content; "" alone: absent

/// Everything at a path: a file as {"": content}, a directory by its files, nothing as {}.
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

/// Runs `trial` with a crash at every mutating call: the target is old or new, never else, and new once the
/// attempt has returned; a later attempt succeeds and leaves nothing beside the target. Returns the number of
/// crash points that left the new content.
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
        // The very next thing is a crash: what was reported as done must be durable.
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

// Nobody knows then whether a file's writer lives; a directory has one, which is gone.
TEST(AtomicFile, WithoutLocksAllIsWritten) {
  const auto disk = posix_file_ops(Syncing::skip);
  FaultyFileOps no_locks(*disk, {.op = FileOp::lock, .error = ENOSYS, .lasting = true});
  const TempDir dir;
  disk->create(dir / ".file.tmp-0");
  disk->make_dir(dir / ".target.tmp-0");
  disk->create(dir / ".target.tmp-0/a");
  for (int i = 0; i < 2; ++i) {
    write_new_file(no_locks, dir / "file");
    write_new_dir(no_locks, dir / "target");
  }
  EXPECT_EQ(content_of(*disk, dir / "target"), (Content{{"a", "new a"}, {"c", "new c"}}));
  EXPECT_EQ(disk->list(dir.path()), (std::vector<std::string>{".file.tmp-0", "file", "target"}));
}

TEST(AtomicFile, EveryCrashLeavesNothingOrAll) {
  EXPECT_GT(check_every_crash_point(
                {[](FileOps&, const Path&) {}, write_new_file, {}, {{"", "new content, second part"}}}),
            0);
}

TEST(AtomicFile, EveryCrashLeavesTheOldOrTheNewFile) {
  EXPECT_GT(check_every_crash_point(
                {[](FileOps& ops, const Path& target) { ops.create(target)->append(as_bytes("old")); },
                 write_new_file,
                 {{"", "old"}},
                 {{"", "new content, second part"}}}),
            0);
}

TEST(AtomicDirectory, EveryCrashLeavesNothingOrAll) {
  EXPECT_GT(check_every_crash_point(
                {[](FileOps&, const Path&) {}, write_new_dir, {}, {{"a", "new a"}, {"c", "new c"}}}),
            0);
}

TEST(AtomicDirectory, EveryCrashLeavesTheOldOrTheNewDirectory) {
  const auto prepare = [](FileOps& ops, const Path& target) {
    ops.make_dir(target);
    ops.create(target / "a")->append(as_bytes("old a"));
    ops.create(target / "b")->append(as_bytes("old b"));
  };
  EXPECT_GT(check_every_crash_point(
                {prepare, write_new_dir, {{"a", "old a"}, {"b", "old b"}}, {{"a", "new a"}, {"c", "new c"}}}),
            0);
}

// The model must be able to fail: the same attempts without their syncs are torn by some crash.
TEST(CrashModel, FindsAMissingFileSync) {
  const auto disk = posix_file_ops(Syncing::skip);
  const TempDir dir;
  CrashingFileOps crashing(*disk, 4, {CrashLoss::Data::lost, CrashLoss::Names::kept});
  crashing.create(dir / "tmp")->append(as_bytes("content"));
  crashing.rename(dir / "tmp", dir / "target");
  crashing.sync_dir(dir.path());
  EXPECT_THROW(crashing.remove(dir / "other"), Crash);
  EXPECT_EQ(content_of(*disk, dir / "target"), (Content{{"", ""}}));
}

TEST(CrashModel, WhatADirectoryTookAlongStaysGone) {
  const auto disk = posix_file_ops(Syncing::skip);
  const TempDir dir;
  disk->make_dir(dir / "old");
  disk->create(dir / "old" / "a")->append(as_bytes("content"));
  CrashingFileOps crashing(*disk, 3);
  remove_tree(crashing, dir / "old");
  crashing.sync_dir(dir.path());
  EXPECT_THROW(crashing.make_dir(dir / "next"), Crash);
  EXPECT_TRUE(disk->list(dir.path()).empty());
}

TEST(CrashModel, FindsAMissingDirectorySync) {
  const auto disk = posix_file_ops(Syncing::skip);
  const TempDir dir;
  disk->create(dir / "target")->append(as_bytes("old"));
  CrashingFileOps crashing(*disk, 4, {CrashLoss::Data::kept, CrashLoss::Names::lost});
  {
    const auto file = crashing.create(dir / "tmp");
    file->append(as_bytes("content"));
    file->sync();
  }
  crashing.rename(dir / "tmp", dir / "target");
  EXPECT_THROW(crashing.sync_dir(dir.path()), Crash);
  EXPECT_EQ(content_of(*disk, dir / "target"), (Content{{"", "old"}}));
  EXPECT_EQ(disk->list(dir.path()), std::vector<std::string>{"target"});
  EXPECT_THROW((void)crashing.create(dir / "more"), Crash);
}

TEST(CrashModel, OverwritesWithoutSyncAreUndoneOrZeroed) {
  const auto disk = posix_file_ops(Syncing::skip);
  for (const auto data : {CrashLoss::Data::kept, CrashLoss::Data::lost, CrashLoss::Data::zeroed}) {
    const TempDir dir;
    disk->create(dir / "a")->append(as_bytes("0123456789"));
    CrashingFileOps crashing(*disk, 2, {data, CrashLoss::Names::kept});
    const auto file = crashing.open_write(dir / "a");
    file->write_at(as_bytes("AB"), Bytes(1));
    file->write_at(as_bytes("CDEF"), Bytes(8));
    EXPECT_THROW(file->write_at(as_bytes("xy"), Bytes(0)), Crash);
    const std::string found = read_file(*disk, dir / "a");
    const std::string expected = data == CrashLoss::Data::kept
                                     ? "xAB34567CDEF"  // half of the last write arrived
                                 : data == CrashLoss::Data::lost ? "0123456789"
                                                                 : std::string("0123456789\0\0", 12);
    EXPECT_EQ(found, expected);
  }
}

TEST(CrashModel, ARemovedFileComesBackWithItsDurableContent) {
  const auto disk = posix_file_ops(Syncing::skip);
  const TempDir dir;
  disk->create(dir / "a")->append(as_bytes("durable"));
  CrashingFileOps crashing(*disk, 2, {CrashLoss::Data::lost, CrashLoss::Names::lost});
  crashing.open_write(dir / "a")->append(as_bytes(" and not"));
  crashing.remove(dir / "a");
  EXPECT_THROW(crashing.sync_dir(dir.path()), Crash);
  EXPECT_EQ(read_file(*disk, dir / "a"), "durable");
}

TEST(AtomicFile, AFullDiskLeavesTheOldContentAndNoLeftovers) {
  const auto disk = posix_file_ops(Syncing::skip);
  const TempDir dir;
  disk->create(dir / "target")->append(as_bytes("old"));
  FaultyFileOps full(*disk, {.op = FileOp::write, .nth = 1, .error = ENOSPC, .lasting = true});
  EXPECT_EQ(input_error([&] { write_new_file(full, dir / "target"); }, dir.path().string()),
            "73|DIR/.target.tmp-0: cannot write 6 bytes at byte 18: No space left on device (ENOSPC)|free "
            "space on the file "
            "system that holds it, or write elsewhere");
  EXPECT_EQ(read_file(*disk, dir / "target"), "old");
  EXPECT_EQ(disk->list(dir.path()), std::vector<std::string>{"target"});
}

TEST(AtomicFile, MakesItsParentsAndRefusesADirectory) {
  const auto disk = posix_file_ops(Syncing::skip);
  const TempDir dir;
  atomic_write_file(*disk, dir / "x/y/target", "text");
  EXPECT_EQ(read_file(*disk, dir / "x/y/target"), "text");
  EXPECT_EQ(input_error([&] { atomic_write_file(*disk, dir / "x", "text"); }, dir.path().string()),
            "73|DIR/x: is a directory, and a file is to be written|give the path of a file");
}

TEST(AtomicFile, ANewOneIsWrittenOnce) {
  const auto disk = posix_file_ops(Syncing::skip);
  const TempDir dir;
  EXPECT_TRUE(atomic_write_new(*disk, dir / "x/target", "first"));
  EXPECT_FALSE(atomic_write_new(*disk, dir / "x/target", "second"));
  EXPECT_EQ(read_file(*disk, dir / "x/target"), "first");
  std::filesystem::create_symlink("nowhere", (dir / "x/link").string());
  disk->make_dir(dir / "x/directory");
  for (const char* taken : {"x/link", "x/directory"})
    EXPECT_FALSE(atomic_write_new(*disk, dir / taken, "new"));
  EXPECT_EQ(disk->list(dir / "x"), (std::vector<std::string>{"directory", "link", "target"}));
}

TEST(AtomicFile, TwoWritersOfOneTargetDoNotDisturbEachOther) {
  const auto disk = posix_file_ops(Syncing::skip);
  const TempDir dir;
  atomic_write_file(*disk, dir / "target", [&](File& outer) {
    outer.append(as_bytes("outer"));
    atomic_write_file(*disk, dir / "target", "inner");
    EXPECT_EQ(read_file(*disk, dir / "target"), "inner");
  });
  EXPECT_EQ(read_file(*disk, dir / "target"), "outer");
  EXPECT_EQ(disk->list(dir.path()), std::vector<std::string>{"target"});
}

TEST(AtomicDirectory, RefusesWhatIsThere) {
  const auto disk = posix_file_ops(Syncing::skip);
  const TempDir dir;
  disk->make_dir(dir / "target");
  disk->create(dir / "file");
  const auto open = [&](const std::string& name, AtomicDir::Existing existing) {
    return input_error([&] { AtomicDir(*disk, dir / name, existing); }, dir.path().string());
  };
  EXPECT_EQ(
      open("target", AtomicDir::Existing::refuse),
      "73|DIR/target: is there already and would be overwritten|name another directory or remove this one");
  EXPECT_EQ(open("file", AtomicDir::Existing::replace),
            "73|DIR/file: is not a directory, so none can take its place|name another directory or remove "
            "this file");
  EXPECT_EQ(open("target", AtomicDir::Existing::replace), "no InputError");
}

TEST(AtomicDirectory, WithoutCommitNothingStays) {
  const auto disk = posix_file_ops(Syncing::skip);
  const TempDir dir;
  {
    AtomicDir out(*disk, dir / "target", AtomicDir::Existing::refuse);
    out.write_file("a", [](File& file) { file.append(as_bytes("a")); });
    EXPECT_EQ(out.path(), dir / ".target.tmp-0");
  }
  EXPECT_TRUE(disk->list(dir.path()).empty());
}

}  // namespace
}  // namespace sc
