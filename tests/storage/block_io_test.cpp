#include "common/storage/block_io.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "common/storage/atomic_dir.h"
#include "tests/storage/aligned_bytes.h"
#include "tests/storage/temp_dir.h"
#include "tests/support/refuse_calls.h"

namespace sc {
namespace {

using test::AlignedBytes;
using test::kBlock;
using Kind = BlockRequest::Kind;

class OneFile : public test::InTempDir {
 protected:
  OneFile() : InTempDir(Syncing::device) {}
  std::unique_ptr<File> file_ = create_unnamed(*ops_, dir_ / "blocks");
};

class BlockIoTest : public OneFile, public ::testing::WithParamInterface<IoEngine> {
 protected:
  /// The engine under test; null, and the test is skipped, where the machine refuses it.
  std::unique_ptr<BlockIo> open(int depth) {
    OpenedIo opened = open_block_io(GetParam(), *file_, depth);
    if (opened.engine != GetParam()) return nullptr;
    EXPECT_EQ(opened.refusal, "");
    return std::move(opened.io);
  }
};

#define OPEN_OR_SKIP(io, depth) \
  const auto io = open(depth);  \
  if (io == nullptr) GTEST_SKIP() << name_of(GetParam()) << " is refused on this machine"

TEST_P(BlockIoTest, ManyAtOnceEachAtItsPlace) {
  constexpr std::uint64_t kBlocks = 7;
  OPEN_OR_SKIP(io, kBlocks);
  std::vector<AlignedBytes> written, read;
  const auto all = [&](Kind kind, std::vector<AlignedBytes>& blocks) {
    for (std::uint64_t i = 0; i < kBlocks; ++i) {
      io->submit({kind, Bytes(static_cast<std::int64_t>(i) * kBlock), blocks[i].span(), i + 100});
    }
    std::map<std::uint64_t, std::int64_t> results;
    for (std::uint64_t i = 0; i < kBlocks; ++i) {
      const BlockResult result = io->reap();
      results[result.id] = result.res;
    }
    for (std::uint64_t i = 0; i < kBlocks; ++i) EXPECT_EQ(results.at(i + 100), kBlock);
  };
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    written.emplace_back(kBlock, i + 1);
    read.emplace_back(kBlock);
  }
  all(Kind::write, written);
  all(Kind::read, read);
  for (std::uint64_t i = 0; i < kBlocks; ++i) EXPECT_TRUE(read[i] == written[i]) << i;
  AlignedBytes from_outside(kBlock);
  file_->read_at(from_outside.span(), Bytes(3 * kBlock));
  EXPECT_TRUE(from_outside == written[3]);
}

TEST_P(BlockIoTest, ResultsAreTheSystemsOwn) {
  OPEN_OR_SKIP(io, 2);
  AlignedBytes block(kBlock);
  const auto result = [&](std::int64_t offset) {
    io->submit({Kind::read, Bytes(offset), block.span(), 5});
    return io->reap().res;
  };
  EXPECT_EQ(result(0), kBlockAlign) << "the file has the probe's bytes only";
  EXPECT_EQ(result(kBlockAlign), 0);
  EXPECT_EQ(result(-kBlock), -EINVAL);
}

TEST_P(BlockIoTest, ALimitedEngineIsNoFasterThanItsLimit) {
  OPEN_OR_SKIP(unlimited, 4);
  const auto io = limit_rate(open(4), 2);  // 16 KiB at 2 MB/s: 8.2 ms
  AlignedBytes block(kBlock, 1);
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; i < 4; ++i) io->submit({Kind::write, Bytes(0), block.span(), i});
  for (int i = 0; i < 4; ++i) EXPECT_EQ(io->reap().res, kBlock);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(took.count(), 4 * kBlock / 2e6);
}

/// The number of this process's io_uring workers: kernel threads that run requests which would block.
std::int64_t kernel_workers() {
  const auto is_one = [](const auto& task) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    return name.starts_with("iou-wrk-");
  };
  return std::ranges::count_if(std::filesystem::directory_iterator("/proc/self/task"), is_one);
}

TEST_F(OneFile, TheKernelsWorkersStayWhenAQueueCloses) {
  std::int64_t open_ones = 0;
  {
    const OpenedIo opened = open_block_io(IoEngine::io_uring, *file_, 2);  // the probe writes
    open_ones = kernel_workers();
  }
  if (open_ones == 0) GTEST_SKIP() << "no io_uring here, or its writes need no worker";
  // A worker that ended together with its queue would be gone within a millisecond, and might take the first
  // transfer of the next queue with it.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(kernel_workers(), open_ones);
}

INSTANTIATE_TEST_SUITE_P(Engines, BlockIoTest, ::testing::Values(IoEngine::threads, IoEngine::io_uring),
                         [](const auto& info) { return std::string(name_of(info.param)); });

/// Runs each test in a thread of its own, because a refused system call stays refused for its thread.
class RefusedEngineTest : public OneFile {
 protected:
  /// "<engine>|<refusal>" of open_block_io(), or its InputError, on a machine that refuses `calls`.
  std::string opened(IoEngine wanted, const std::vector<long>& calls, int error) {
    std::string text;
    std::thread([&] {
      if (!refuse_calls(calls, error)) return;
      const std::string failed = error_of([&] {
        const OpenedIo io = open_block_io(wanted, *file_, 2);
        text = std::string(name_of(io.engine)) + "|" + io.refusal;
      });
      if (text.empty()) text = failed;
    }).join();
    return text;
  }
};

TEST_F(RefusedEngineTest, TheOtherOneTakesItsPlace) {
  if (open_block_io(IoEngine::io_uring, *file_, 2).engine != IoEngine::io_uring)
    GTEST_SKIP() << "refused here anyway";
  const std::string setup = opened(IoEngine::io_uring, {SYS_io_uring_setup}, EPERM);
  if (setup.empty()) GTEST_SKIP() << "no seccomp here";
  EXPECT_EQ(setup,
            "threads|io_uring is refused here: Operation not permitted (EPERM); threads takes its place");
  EXPECT_EQ(opened(IoEngine::io_uring, {SYS_io_uring_enter}, EACCES),
            "threads|io_uring is refused here: Permission denied (EACCES); threads takes its place");
  EXPECT_EQ(opened(IoEngine::threads, {SYS_clone, SYS_clone3}, EAGAIN),
            "io_uring|threads is refused here: Resource temporarily unavailable; io_uring takes its place");
}

TEST_F(RefusedEngineTest, WithoutAnyTheRunDoesNotBegin) {
  const std::string text = opened(IoEngine::io_uring, {SYS_io_uring_setup, SYS_clone, SYS_clone3}, EAGAIN);
  if (text.empty()) GTEST_SKIP() << "no seccomp here";
  // The reason given for io_uring differs in a build without liburing, so only the message's two ends are
  // compared.
  const std::string start = "69|DIR/blocks: io_uring is refused here: ";
  const std::string end =
      "; threads is refused here: Resource temporarily unavailable|use a local file system (ext4, xfs, "
      "btrfs, "
      "tmpfs); raise the limit of threads (ulimit -u)";
  EXPECT_EQ(text.substr(0, start.size()), start);
  EXPECT_EQ(text.substr(text.size() - std::min(text.size(), end.size())), end);
}

}  // namespace
}  // namespace sc
