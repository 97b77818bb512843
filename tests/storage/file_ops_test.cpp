#include "common/storage/file_ops.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <functional>

#include "common/storage/atomic_dir.h"
#include "common/storage/mapped_file.h"
#include "common/storage/run_lock.h"
#include "tests/storage/temp_dir.h"
#include "tests/support/file_ops_decorators.h"

namespace sc {
namespace {

class FileOpsTest : public test::InTempDir {
 protected:
  FileOpsTest() : InTempDir(Syncing::device) {}
};

/// Acts as the user nobody while it lives, because root may read every directory.
class AsNobody {
 public:
  [[nodiscard]] bool is_somebody_else() const { return ::geteuid() != 0; }
  ~AsNobody() { EXPECT_EQ(::seteuid(before_), 0); }

 private:
  const uid_t before_ = ::geteuid();
  const int left_ = before_ == 0 ? ::seteuid(12345) : 0;
};

TEST_F(FileOpsTest, WritesReadsAndMeasures) {
  const auto file = ops_->create(dir_ / "a");
  file->append(as_bytes("hello"));
  file->append(as_bytes(" world"));
  file->write_at(as_bytes("J"), Bytes(0));
  file->write_at(as_bytes("!"), Bytes(12));  // one past the end: the gap is a zero
  file->sync();
  EXPECT_EQ(file->size(), Bytes(13));
  EXPECT_EQ(read_file(*ops_, dir_ / "a"), std::string("Jello world\0!", 13));
  std::string part(20, 'x');
  EXPECT_EQ(file->read_at(std::as_writable_bytes(std::span(part)), Bytes(6)), Bytes(7));
  EXPECT_EQ(part.substr(0, 8), std::string("world\0!x", 8));
  EXPECT_EQ(ops_->size(dir_ / "a"), Bytes(13));
  EXPECT_GT(ops_->free_space(dir_.path()).bytes, Bytes(0));
}

TEST_F(FileOpsTest, OpenWriteKeepsContentAndCreateEmpties) {
  put("a", "0123456789");
  ops_->open_write(dir_ / "a")->write_at(as_bytes("ab"), Bytes(4));
  EXPECT_EQ(read_file(*ops_, dir_ / "a"), "0123ab6789");
  EXPECT_EQ(ops_->create_new(dir_ / "a"), nullptr);
  EXPECT_EQ(read_file(*ops_, dir_ / "a"), "0123ab6789");
  EXPECT_EQ(ops_->create(dir_ / "a")->size(), Bytes(0));
}

TEST_F(FileOpsTest, AFileWithoutAName) {
  const auto file = ops_->create_unnamed(dir_ / "a");
  if (file == nullptr) GTEST_SKIP() << "this file system has no O_TMPFILE";
  EXPECT_TRUE(ops_->list(dir_.path()).empty());
  file->append(as_bytes("hello"));
  const auto again = file->again();
  std::string text(5, ' ');
  EXPECT_EQ(again->read_at(std::as_writable_bytes(std::span(text)), Bytes(0)), Bytes(5));
  EXPECT_EQ(text, "hello");
  EXPECT_EQ(again->path(), dir_ / "a");
  EXPECT_NE(again->descriptor(), file->descriptor());
  EXPECT_EQ(error_of([&] { ops_->create_unnamed(dir_ / "no/a"); }),
            "73|DIR/no/a: cannot create: No such file or directory (ENOENT)|create its directory: mkdir -p "
            "DIR/no");
}

TEST_F(FileOpsTest, OneSystemCallAtATime) {
  put("a", "0123456789");
  const auto file = ops_->open_read(dir_ / "a");
  std::string text(20, 'x');
  const auto bytes = std::as_writable_bytes(std::span(text));
  EXPECT_EQ(file->read_some(bytes, Bytes(4)), 6);
  EXPECT_EQ(text.substr(0, 7), "456789x");
  EXPECT_EQ(file->read_some(bytes, Bytes(10)), 0);
  EXPECT_EQ(file->write_some(bytes, Bytes(0)), -EBADF);
  EXPECT_EQ(ops_->open_write(dir_ / "a")->write_some(as_bytes("ab"), Bytes(9)), 2);
  EXPECT_EQ(read_file(*ops_, dir_ / "a"), "012345678ab");
}

TEST_F(FileOpsTest, RoomIsAllocatedAtOnce) {
  const auto file = ops_->create(dir_ / "a");
  file->allocate(Bytes(1 << 20));
  EXPECT_EQ(file->size(), Bytes(1 << 20));
  const std::string error = error_of([&] { file->allocate(Bytes(std::int64_t{1} << 62)); });
  EXPECT_EQ(error.find("73|DIR/a: cannot allocate 4611686018427387904 bytes: "), 0U) << error;
}

TEST_F(FileOpsTest, NamesAreCreatedRenamedSwappedAndRemoved) {
  make_dirs(*ops_, dir_ / "x/y/z");
  EXPECT_EQ(ops_->kind(dir_ / "x/y/z"), PathKind::directory);
  EXPECT_FALSE(ops_->make_dir(dir_ / "x"));
  put("a", "A");
  put("b", "B");
  ops_->exchange(dir_ / "a", dir_ / "b");
  EXPECT_EQ(read_file(*ops_, dir_ / "a"), "B");
  ops_->rename(dir_ / "a", dir_ / "b");
  EXPECT_EQ(read_file(*ops_, dir_ / "b"), "B");
  EXPECT_EQ(ops_->kind(dir_ / "a"), PathKind::absent);
  EXPECT_EQ(ops_->list(dir_.path()), (std::vector<std::string>{"b", "x"}));
  remove_tree(*ops_, dir_ / "x");
  remove_tree(*ops_, dir_ / "b");
  remove_tree(*ops_, dir_ / "absent");
  EXPECT_TRUE(ops_->list(dir_.path()).empty());
}

TEST_F(FileOpsTest, ALockIsHeldOnce) {
  put("a", "");
  auto lock = ops_->try_lock(dir_ / "a", LockMode::exclusive);
  ASSERT_NE(lock, nullptr);
  EXPECT_EQ(ops_->try_lock(dir_ / "a", LockMode::exclusive), nullptr);
  lock.reset();
  EXPECT_NE(ops_->try_lock(dir_ / "a", LockMode::exclusive), nullptr);
  EXPECT_EQ(ops_->try_lock(dir_ / "absent", LockMode::exclusive), nullptr);
}

TEST_F(FileOpsTest, ErrorsNameThePathTheCallAndAFix) {
  put("file", "x");
  ops_->make_dir(dir_ / "full");
  put("full/inside", "x");
  const std::string check = "|check the path (it is relative to the working directory)";
  const std::pair<std::function<void()>, std::string> all[] = {
      {[&] { ops_->open_read(dir_ / "absent"); },
       "65|DIR/absent: cannot open: No such file or directory (ENOENT)" + check},
      {[&] { ops_->open_read(dir_.path()); },
       "65|DIR: cannot open: Is a directory (EISDIR)|give the path of a file, not of a directory"},
      {[&] { ops_->create(dir_ / "no/file"); },
       "73|DIR/no/file: cannot create: No such file or directory (ENOENT)|create its directory: mkdir -p "
       "DIR/no"},
      {[&] { ops_->create(dir_ / "file/below"); },
       "73|DIR/file/below: cannot create: Not a directory (ENOTDIR)|a part of the path is a file: check the "
       "path"},
      {[&] { ops_->make_dir(dir_ / "file"); },
       "73|DIR/file: cannot create the directory: File exists (EEXIST)|something else has that name: give "
       "another one, or move it away"},
      {[&] { ops_->rename(dir_ / "absent", dir_ / "b"); },
       "73|DIR/b: cannot rename DIR/absent to it: No such file or directory (ENOENT)|create its directory: "
       "mkdir -p DIR"},
      {[&] { ops_->remove(dir_ / "full"); },
       "73|DIR/full: cannot remove: Directory not empty (ENOTEMPTY)|something else uses it: see what it "
       "holds, and give another path"},
      {[&] { (void)ops_->list(dir_ / "absent"); },
       "65|DIR/absent: cannot list the directory: No such file or directory (ENOENT)" + check},
      {[&] { (void)ops_->size(dir_ / "absent"); },
       "65|DIR/absent: cannot read the size: No such file or directory (ENOENT)" + check}};
  for (const auto& [call, error] : all) EXPECT_EQ(error_of(call), error);
}

TEST_F(FileOpsTest, AMissingFeatureIsExit69) {
  EXPECT_EQ(file_error(FileIntent::write, "p", "swap names with q", EOPNOTSUPP).code(), ExitCode::missing);
  EXPECT_EQ(file_error(FileIntent::read, "p", "map into memory", ENOSYS).code(), ExitCode::missing);
}

TEST_F(FileOpsTest, AMappedFileIsItsBytes) {
  put("a", "mapped");
  put("empty", "");
  MappedFile file(dir_ / "a");
  EXPECT_EQ(file.text(), "mapped");
  const MappedFile moved = std::move(file);
  EXPECT_EQ(moved.text(), "mapped");
  EXPECT_EQ(MappedFile(dir_ / "empty").size(), Bytes(0));
  ASSERT_EQ(::mkfifo((dir_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { MappedFile(dir_ / "pipe"); }),
            "65|DIR/pipe: is not a regular file (it is a pipe, a device or a socket)|copy its content to a "
            "file and give "
            "that");
  EXPECT_EQ(error_of([&] { MappedFile{dir_.path()}; }),
            "65|DIR: cannot open: Is a directory (EISDIR)|give the path of a file, not of a directory");
}

TEST_F(FileOpsTest, CountingCountsCallsAndBytes) {
  CountingFileOps counting(*ops_);
  {
    const auto file = counting.create(dir_ / "a");
    file->append(as_bytes("12345"));
    file->write_at(as_bytes("678"), Bytes(5));
    file->sync();
  }
  EXPECT_EQ(counting.create_new(dir_ / "a"), nullptr);
  EXPECT_EQ(read_file(counting, dir_ / "a"), "12345678");
  counting.sync_dir(dir_.path());
  EXPECT_THROW(counting.remove(dir_ / "absent"), InputError);
  const std::pair<FileOp, std::int64_t> calls[] = {{FileOp::create, 1}, {FileOp::write, 2},
                                                   {FileOp::sync, 1},   {FileOp::sync_dir, 1},
                                                   {FileOp::rename, 0}, {FileOp::remove, 0}};
  for (const auto& [op, count] : calls) EXPECT_EQ(counting.of(op).calls, count) << name_of(op);
  for (const FileOp op : {FileOp::write, FileOp::read}) EXPECT_EQ(counting.of(op).bytes, Bytes(8));
}

TEST_F(FileOpsTest, ANameThatIsTooLongIsNobodysAndCannotBeWritten) {
  const Path path = dir_ / std::string(300, 'a');
  EXPECT_EQ(ops_->kind(path / "b"), PathKind::absent);
  EXPECT_EQ(ops_->kind_of_name(path), PathKind::absent);
  const std::string error = error_of([&] { make_dirs(*ops_, path / "b"); });
  EXPECT_EQ(error.substr(0, 3), "73|") << error;
  EXPECT_NE(error.find("File name too long (ENAMETOOLONG)|give a shorter name"), std::string::npos) << error;
}

// In a directory without the x permission names can be listed, but the files behind them cannot be looked at.
TEST_F(FileOpsTest, WhatIsToBeWrittenInAFolderThatMayNotBeSearchedCannotBe) {
  ops_->make_dir(dir_ / "locked");
  put("locked/x", "text");
  ASSERT_EQ(::chmod(dir_.path().c_str(), 0755), 0);
  ASSERT_EQ(::chmod((dir_ / "locked").c_str(), 0666), 0);
  const Path path = dir_ / "locked/x";
  const AsNobody nobody;
  if (!nobody.is_somebody_else()) GTEST_SKIP() << "root is asked, and cannot be somebody else";
  const std::string refusal =
      "73|DIR/locked/x: cannot look at: Permission denied (EACCES)|write where you have permission, or "
      "change "
      "the directory's owner or mode";
  EXPECT_EQ(error_of([&] { make_dirs(*ops_, path); }), refusal);
  EXPECT_EQ(error_of([&] { atomic_write_file(*ops_, path, ""); }), refusal);
  EXPECT_EQ(error_of([&] { AtomicDir(*ops_, path, AtomicDir::Existing::refuse); }), refusal);
  const auto hold = [&](LockMode mode) {
    RunLock::Asked asked;
    asked.file = path / ".lock";
    asked.owner.mode = mode;
    const RunLock held(*ops_, asked);
  };
  EXPECT_EQ(error_of([&] { hold(LockMode::exclusive); }), refusal);
  EXPECT_EQ(error_of([&] { (void)ops_->free_space(path); }).substr(0, 17), "73|DIR/locked/x: ");
  EXPECT_EQ(error_of([&] { (void)create_unnamed(*ops_, path); }).substr(0, 17), "73|DIR/locked/x: ");
  const std::string unread = "65|DIR/locked/x: cannot look at: Permission denied (EACCES)|";
  EXPECT_EQ(error_of([&] { (void)ops_->kind(path); }).substr(0, unread.size()), unread);
  EXPECT_EQ(error_of([&] { hold(LockMode::shared); }).substr(0, unread.size()), unread);
  EXPECT_EQ(error_of([&] { (void)read_file(*ops_, path); }).substr(0, 3), "65|");
}

// In a directory that cannot be listed, a crashed writer's leftovers could not be found, so writing is
// refused.
TEST_F(FileOpsTest, AFolderThatMayNotBeListedCannotBeWritten) {
  ops_->make_dir(dir_ / "drop");
  ASSERT_EQ(::chmod(dir_.path().c_str(), 0755), 0);
  ASSERT_EQ(::chmod((dir_ / "drop").c_str(), 0333), 0);
  const AsNobody nobody;
  if (!nobody.is_somebody_else()) GTEST_SKIP() << "root is asked, and cannot be somebody else";
  EXPECT_EQ(error_of([&] { atomic_write_file(*ops_, dir_ / "drop/x", ""); }),
            "73|DIR/drop: cannot open the directory: Permission denied (EACCES)|write where you have "
            "permission, or change the directory's owner or mode");
}

TEST_F(FileOpsTest, AFaultHitsTheNthCallAndLeavesHalfAWrite) {
  FaultyFileOps faulty(*ops_, {.op = FileOp::write, .nth = 1, .error = ENOSPC});
  const auto file = faulty.create(dir_ / "a");
  file->append(as_bytes("first."));
  EXPECT_EQ(error_of([&] { file->append(as_bytes("second")); }),
            "73|DIR/a: cannot write 3 bytes at byte 9: No space left on device (ENOSPC)|free space on the "
            "file system that "
            "holds it, or write elsewhere");
  EXPECT_EQ(read_file(*ops_, dir_ / "a"), "first.sec");
  file->append(as_bytes("!"));  // not lasting
  EXPECT_EQ(read_file(*ops_, dir_ / "a"), "first.sec!");
}

TEST_F(FileOpsTest, ALastingFaultStaysAndChoosesItsPaths) {
  FaultyFileOps faulty(*ops_, {.op = {}, .nth = 0, .error = EIO, .lasting = true, .path_contains = "bad"});
  const auto good = faulty.create(dir_ / "good");
  good->append(as_bytes("kept"));
  const std::string error =
      "73|DIR/bad: cannot create: Input/output error (EIO)|the device reports an error (see dmesg): use "
      "another disk";
  EXPECT_EQ(error_of([&] { faulty.create(dir_ / "bad"); }), error);
  EXPECT_EQ(error_of([&] { faulty.create(dir_ / "bad"); }), error);
  EXPECT_EQ(read_file(faulty, dir_ / "good"), "kept");
  FaultyFileOps unreadable(*ops_, {.op = FileOp::read, .nth = 0, .error = EIO});
  EXPECT_EQ(error_of([&] { read_file(unreadable, dir_ / "good"); }),
            "65|DIR/good: cannot read 4 bytes at byte 0: Input/output error (EIO)|the device reports an "
            "error (see dmesg): "
            "use another disk");
}

}  // namespace
}  // namespace sc
