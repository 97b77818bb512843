// Tests who may lock a directory: one writer or several readers, against dead and living processes, with
// kernel locks and without.
#include "common/storage/run_lock.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "tests/storage/temp_dir.h"
#include "tests/support/file_ops_decorators.h"

namespace sc {
namespace {

using Names = std::vector<std::string>;

/// A process that sleeps until it is killed.
class Sleeper {
 public:
  Sleeper() : pid_(::fork()) {
    if (pid_ == 0) {
      for (;;) ::pause();
    }
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  ~Sleeper() { kill(); }
  [[nodiscard]] std::int64_t pid() const { return pid_; }
  void kill() {
    if (pid_ == 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_;
};

/// The start time of a process as launch.sh computes it, from /proc/<pid>/stat.
std::int64_t start_of(std::int64_t pid) {
  const std::string stat = [&] {
    std::string text(4096, '\0');
    std::FILE* file = std::fopen(("/proc/" + std::to_string(pid) + "/stat").c_str(), "r");
    text.resize(std::fread(text.data(), 1, text.size(), file));
    std::fclose(file);
    return text.substr(text.rfind(')') + 2);
  }();
  std::size_t at = 0;
  for (int field = 3; field < 22; ++field) at = stat.find(' ', at) + 1;
  return std::stoll(stat.substr(at));
}

class RunLockTest : public test::InTempDir {
 protected:
  std::string asks(LockMode mode, LockOwner owner, std::unique_ptr<RunLock>& hold) {
    return asks(*ops_, mode, owner, hold);
  }
  std::string asks(FileOps& ops, LockMode mode, LockOwner owner, std::unique_ptr<RunLock>& hold) {
    owner.mode = mode;
    return error_of([&] {
      const auto warn = [this](const std::string& text) { warned_.push_back(text); };
      hold = std::make_unique<RunLock>(
          ops, RunLock::Asked{dir_ / "ck/.lock", owner, "--save-every", (dir_ / "ck").string(), "elsewhere",
                              warn, std::chrono::milliseconds(owner.host == me_.host ? 50 : 2)});
    });
  }
  std::string writes(std::unique_ptr<RunLock>& hold) { return asks(LockMode::exclusive, me_, hold); }
  std::string reads(std::unique_ptr<RunLock>& hold) { return asks(LockMode::shared, me_, hold); }
  void sign(const LockOwner& owner) {
    make_dirs(*ops_, dir_ / "ck");
    put("ck/.lock", text_of(owner));
  }
  [[nodiscard]] LockOwner of(std::int64_t pid, std::int64_t started) const {
    LockOwner other = me_;
    other.pid = pid;
    other.started = started;
    return other;
  }
  [[nodiscard]] std::string refused(const LockOwner& by, const char* how) const {
    return "64|--save-every: DIR/ck is in use: process " + std::to_string(by.pid) + " on " + by.host + " " +
           how + "|elsewhere";
  }

  const LockOwner me_ = this_lock_owner(nullptr);
  std::vector<std::string> warned_;
};

/// File operations of a file system whose locks hold within each host, as seen from another host.
class OtherHost final : public HookedFileOps {
 public:
  using HookedFileOps::HookedFileOps;
  std::unique_ptr<FileLock> try_lock(const Path&, LockMode) override { return std::make_unique<FileLock>(); }
};

TEST_F(RunLockTest, AHolderIsThisProcessOrTheLivingOneThatIsNamed) {
  EXPECT_EQ(me_.pid, ::getpid());
  EXPECT_EQ(me_.started, start_of(::getpid()));
  Sleeper other;
  const std::string named =
      std::to_string(other.pid()) + " " + std::to_string(start_of(other.pid())) + " " + me_.host;
  EXPECT_EQ(this_lock_owner(named.c_str()), of(other.pid(), start_of(other.pid())));
  EXPECT_EQ(this_lock_owner((named + "x").c_str()), me_) << "another host's";
  for (const char* nobody : {"", "x", "1", "1 2"}) EXPECT_EQ(this_lock_owner(nobody), me_) << nobody;
  other.kill();
  EXPECT_EQ(this_lock_owner(named.c_str()), me_) << "it is gone";
}

TEST_F(RunLockTest, TextsOfHolders) {
  LockOwner owner{12, 345, "node-1", LockMode::shared};
  EXPECT_EQ(text_of(owner), "read by process 12 started 345 on node-1\n");
  EXPECT_EQ(lock_owner_of_text(text_of(owner)), owner);
  owner.mode = LockMode::exclusive;
  EXPECT_EQ(lock_owner_of_text(text_of(owner)), owner);
  for (const char* other :
       {"", "written by process 12 started 345 on ", "written by process x started 345 on h\n",
        "written by process 12 started 345 on h", "anything"})
    EXPECT_EQ(lock_owner_of_text(other), std::nullopt) << other;
}

TEST_F(RunLockTest, OneWrites) {
  std::unique_ptr<RunLock> first, second;
  EXPECT_EQ(writes(first), "no InputError");
  EXPECT_EQ(ops_->list(dir_ / "ck"), Names{".lock"});
  Sleeper sleeper;  // another process in this one's place: the lock is this one's, whoever asks
  EXPECT_EQ(asks(LockMode::exclusive, of(sleeper.pid(), start_of(sleeper.pid())), second),
            refused(me_, "writes there"));
  EXPECT_EQ(asks(LockMode::shared, of(sleeper.pid(), start_of(sleeper.pid())), second),
            refused(me_, "writes there"));
  first.reset();
  EXPECT_EQ(ops_->kind(dir_ / "ck"), PathKind::absent) << "it made the directory, and nothing was written";
  EXPECT_EQ(writes(second), "no InputError");
}

TEST_F(RunLockTest, SeveralRead) {
  std::unique_ptr<RunLock> first, second, writer;
  make_dirs(*ops_, dir_ / "ck");
  Sleeper sleeper;
  const LockOwner other = of(sleeper.pid(), start_of(sleeper.pid()));
  EXPECT_EQ(reads(first), "no InputError");
  EXPECT_EQ(asks(LockMode::shared, other, second), "no InputError");
  EXPECT_EQ(asks(LockMode::exclusive, other, writer), refused(me_, "goes on from there"));
  first.reset();
  EXPECT_EQ(asks(LockMode::exclusive, of(1, start_of(1)), writer).substr(0, 3), "64|");
  second.reset();
  EXPECT_TRUE(ops_->list(dir_ / "ck").empty()) << "the last one removes it";
  EXPECT_EQ(writes(writer), "no InputError");
}

TEST_F(RunLockTest, WhatTheDeadLeftIsFree) {
  std::unique_ptr<RunLock> hold;
  Sleeper sleeper;
  const LockOwner other = of(sleeper.pid(), start_of(sleeper.pid()));
  sign(of(other.pid, other.started - 1));  // the number was given again: it is another process
  EXPECT_EQ(writes(hold), "no InputError");
  hold.reset();
  sleeper.kill();
  sign(other);
  EXPECT_EQ(writes(hold), "no InputError");
  EXPECT_EQ(lock_owner_of_text(read_file(*ops_, dir_ / "ck/.lock")), me_);
}

// Between two attempts of --max-restarts only launch.sh runs; it is named in the lock and still holds it.
TEST_F(RunLockTest, WhoStartsRunsInTurnHoldsBetweenThem) {
  std::unique_ptr<RunLock> hold;
  Sleeper launcher;
  const LockOwner other = of(launcher.pid(), start_of(launcher.pid()));
  sign(other);
  EXPECT_EQ(writes(hold), refused(other, "writes there"));
  EXPECT_EQ(reads(hold), refused(other, "writes there"));
  EXPECT_EQ(asks(LockMode::exclusive, other, hold), "no InputError") << "its own next attempt";
}

TEST_F(RunLockTest, AReaderNeedsNothing) {
  std::unique_ptr<RunLock> hold;
  EXPECT_EQ(reads(hold), "no InputError") << "no such directory";
  EXPECT_EQ(ops_->kind(dir_ / "ck"), PathKind::absent);
  ops_->make_dir(dir_ / "ck");
  FaultyFileOps read_only(*ops_, {.op = FileOp::create, .error = EROFS, .lasting = true});
  EXPECT_EQ(asks(read_only, LockMode::shared, me_, hold), "no InputError");
  EXPECT_TRUE(ops_->list(dir_ / "ck").empty());
  EXPECT_EQ(
      asks(read_only, LockMode::exclusive, me_, hold),
      "73|DIR/ck/.lock: cannot create: Read-only file system (EROFS)|write to a file system that is not "
      "read-only");
}

TEST_F(RunLockTest, ALockFileThatIsSomethingElse) {
  std::unique_ptr<RunLock> hold;
  ops_->make_dir(dir_ / "ck");
  ops_->make_dir(dir_ / "precious");
  ops_->create(dir_ / "precious/keep")->append(as_bytes("kept"));
  ASSERT_EQ(::symlink("../precious/keep", (dir_ / "ck/.lock").c_str()), 0);
  const std::string error =
      "64|DIR/ck/.lock: says who writes there, and is not a file of such a run|remove it";
  EXPECT_EQ(writes(hold), error);
  EXPECT_EQ(read_file(*ops_, dir_ / "precious/keep"), "kept");
  ops_->remove(dir_ / "ck/.lock");
  ASSERT_EQ(::symlink("nowhere", (dir_ / "ck/.lock").c_str()), 0);
  EXPECT_EQ(writes(hold), error);
  EXPECT_EQ(reads(hold), error);
  ops_->remove(dir_ / "ck/.lock");
  ASSERT_EQ(::mkfifo((dir_ / "ck/.lock").c_str(), 0600), 0);
  EXPECT_EQ(writes(hold), error);
  EXPECT_EQ(reads(hold), error);
  ops_->remove(dir_ / "ck/.lock");
  for (const std::string& content : {std::string("notes of mine"), std::string(5000, 'x')}) {
    ops_->create(dir_ / "ck/.lock")->append(as_bytes(content));
    ASSERT_EQ(::link((dir_ / "ck/.lock").c_str(), (dir_ / "precious/linked").c_str()), 0);
    EXPECT_EQ(writes(hold), error);
    EXPECT_EQ(reads(hold), error);
    EXPECT_EQ(read_file(*ops_, dir_ / "precious/linked"), content);
    ops_->remove(dir_ / "ck/.lock");
    ops_->remove(dir_ / "precious/linked");
  }
  ops_->create(dir_ / "ck/.lock");  // of a run that was killed before it could sign
  EXPECT_EQ(writes(hold), "no InputError");
}

TEST_F(RunLockTest, WithoutLocksTheFileIsTheLock) {
  FaultyFileOps no_locks(*ops_, {.op = FileOp::lock, .error = EOPNOTSUPP, .lasting = true});
  std::unique_ptr<RunLock> first, second;
  Sleeper sleeper;
  const LockOwner other = of(sleeper.pid(), start_of(sleeper.pid()));
  EXPECT_EQ(asks(no_locks, LockMode::exclusive, other, first), "no InputError");
  ASSERT_EQ(warned_.size(), 1U);
  EXPECT_NE(warned_[0].find("has no locks"), std::string::npos) << warned_[0];
  EXPECT_EQ(asks(no_locks, LockMode::exclusive, me_, second), refused(other, "writes there"));
  EXPECT_EQ(asks(no_locks, LockMode::shared, me_, second), refused(other, "writes there"));
  sleeper.kill();
  EXPECT_EQ(asks(no_locks, LockMode::exclusive, me_, second), "no InputError") << "it is gone";
  EXPECT_EQ(ops_->list(dir_ / "ck"), Names{".lock"});
  second.reset();
  first.reset();
  EXPECT_EQ(ops_->kind(dir_ / "ck"), PathKind::absent);
}

// A process on another host cannot be seen, nor its lock; only a lock file that stands still shows that it is
// gone.
TEST_F(RunLockTest, AHolderOnAnotherHostIsGoneIfItStandsStill) {
  FaultyFileOps no_locks(*ops_, {.op = FileOp::lock, .error = ENOLCK, .lasting = true});
  OtherHost locks(*ops_);
  LockOwner elsewhere = me_;
  elsewhere.host = "another-host";
  for (FileOps* ops : {static_cast<FileOps*>(&no_locks), static_cast<FileOps*>(&locks)}) {
    std::unique_ptr<RunLock> there, here;
    ASSERT_EQ(asks(*ops, LockMode::exclusive, elsewhere, there), "no InputError");
    warned_.clear();
    EXPECT_EQ(asks(*ops, LockMode::exclusive, me_, here), refused(elsewhere, "writes there"));
    EXPECT_EQ(asks(*ops, LockMode::shared, me_, here), refused(elsewhere, "writes there"));
    ASSERT_EQ(warned_.size(), 2U);
    EXPECT_NE(warned_[0].find("process " + std::to_string(me_.pid) + " on another-host"), std::string::npos);
    there.reset();
    EXPECT_EQ(ops_->kind(dir_ / "ck"), PathKind::absent) << "it has ended";
    sign(elsewhere);
    ops_->open_write(dir_ / "ck/.lock")->append(as_bytes("17\n"));
    EXPECT_EQ(asks(*ops, LockMode::exclusive, me_, here), "no InputError") << "it was killed";
    EXPECT_EQ(lock_owner_of_text(read_file(*ops_, dir_ / "ck/.lock")), me_);
    // A process that had only paused takes the lock back, and this process must notice. Both may write at the
    // same moment, so the test tries again.
    bool stays = false;
    for (int i = 0; i < 3 && !stays; ++i) {
      sign(elsewhere);
      std::this_thread::sleep_for(std::chrono::milliseconds(120));
      stays = read_file(*ops_, dir_ / "ck/.lock") == text_of(elsewhere);
    }
    EXPECT_TRUE(stays);
    here.reset();
    EXPECT_EQ(read_file(*ops_, dir_ / "ck/.lock"), text_of(elsewhere));
    remove_tree(*ops_, dir_ / "ck");
  }
}

}  // namespace
}  // namespace sc
