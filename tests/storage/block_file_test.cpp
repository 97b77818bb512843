#include "common/storage/block_file.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cerrno>
#include <limits>
#include <stdexcept>
#include <thread>

#include "tests/storage/aligned_bytes.h"
#include "tests/storage/temp_dir.h"
#include "tests/support/faulty_block_io.h"
#include "tests/support/file_ops_decorators.h"
#include "tests/support/refuse_calls.h"

namespace sc {
namespace {

using test::AlignedBytes;
using test::kBlock;
using Fault = FaultyBlockIo::Fault;
using What = FaultyBlockIo::What;
using Kind = BlockRequest::Kind;

const std::vector<Bytes> kExtents = {Bytes(40'000), Bytes(kBlock), Bytes(3 * kBlock)};  // 3, 1 and 3 blocks
constexpr auto kAlways = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kFileBytes = 40'960 + 4 * kBlock;
constexpr const char* kRoom = "; the file takes 106.50 kB, FREE are free";

class BlockFileTest : public test::InTempDir, public ::testing::WithParamInterface<IoEngine> {
 protected:
  BlockFileTest() : InTempDir(Syncing::device) {}
  [[nodiscard]] BlockFile::Options options() const {
    return {.path = dir_ / "states", .block = Bytes(kBlock), .depth = 3, .engine = GetParam()};
  }
  [[nodiscard]] BlockFile::Options with(Fault fault) const {
    BlockFile::Options o = options();
    o.wrap = [fault](auto io) { return std::make_unique<FaultyBlockIo>(std::move(io), fault); };
    return o;
  }
  /// Options of a disk that takes a third of a second for each block, one after the other.
  [[nodiscard]] BlockFile::Options slow() const {
    BlockFile::Options o = options();
    o.depth = 1;
    o.mbps = 0.05;
    return o;
  }
  /// input_error() with the word FREE in place of the number of free bytes, which varies.
  template <class Call>
  std::string error_of(Call call) {
    std::string text = InTempDir::error_of(call);
    const std::size_t end = text.find(" are free"), begin = text.rfind(", ", end);
    return end == std::string::npos ? text : text.replace(begin + 2, end - begin - 2, "FREE");
  }
};

void expect_start(std::string_view start, const std::string& text) {
  EXPECT_EQ(text.substr(0, start.size()), start) << text;
}

void write_all(BlockFile& file, std::uint64_t seed) {
  std::vector<AlignedBytes> bytes;
  std::vector<DiskTransfer> transfers;
  for (std::size_t i = 0; i < kExtents.size(); ++i) {
    bytes.emplace_back(file.extent_bytes(i).value(), seed + i);
    transfers.push_back(file.write(i, bytes.back().span()));
  }
  for (DiskTransfer& transfer : transfers) {
    while (!transfer.done())
      std::this_thread::yield();  // before the memory goes, whatever becomes of the others
  }
  for (DiskTransfer& transfer : transfers) transfer.wait();
}

void expect_all(BlockFile& file, std::uint64_t seed) {
  for (std::size_t i = 0; i < kExtents.size(); ++i) {
    AlignedBytes read(file.extent_bytes(i).value());
    file.read(i, read.span()).wait();
    EXPECT_TRUE(read == AlignedBytes(file.extent_bytes(i).value(), seed + i)) << "extent " << i;
  }
}

TEST_P(BlockFileTest, WhatWasWrittenLastIsReadAndNothingHasAName) {
  BlockFile file(*ops_, options(), kExtents);
  EXPECT_EQ(file.size(), Bytes(kFileBytes));
  EXPECT_EQ(file.extent_bytes(0), Bytes(40'960));
  for (const std::uint64_t seed : {1, 10}) {
    write_all(file, seed);
    expect_all(file, seed);
  }
  EXPECT_TRUE(ops_->list(dir_.path()).empty());
  const bool direct = ops_->create(dir_ / "other")->set_direct(true);
  if (file.engine() == GetParam()) {
    EXPECT_EQ(file.notes().empty(), direct);
  }
  const BlockFile::Counts counts = file.counts();
  EXPECT_EQ(counts.read, Bytes(2 * kFileBytes));
  EXPECT_EQ(counts.written, Bytes(2 * kFileBytes));
  EXPECT_EQ(counts.continued + counts.repeated, 0);
  EXPECT_GT(counts.sum_seconds, 0);
}

TEST_P(BlockFileTest, ReadsAndWritesOfSeveralThreadsAtOnce) {
  BlockFile file(*ops_, options(), kExtents);
  const std::jthread observer([&file](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const BlockFile::Counts counts = file.counts();
      EXPECT_LE(counts.read.value(), counts.written.value());
    }
  });
  std::vector<std::jthread> threads;
  for (std::size_t extent = 0; extent < kExtents.size(); ++extent) {
    threads.emplace_back([&file, extent] {
      AlignedBytes written(file.extent_bytes(extent).value()), read(file.extent_bytes(extent).value());
      for (std::uint64_t round = 1; round <= 20; ++round) {
        written.fill(round * 100 + extent);
        file.write(extent, written.span()).wait();
        file.read(extent, read.span()).wait();
        EXPECT_TRUE(read == written) << extent << ", round " << round;
      }
    });
  }
}

TEST_P(BlockFileTest, AnEmptyExtentTakesNothing) {
  BlockFile file(*ops_, options(), {Bytes(0), Bytes(kBlock)});
  EXPECT_EQ(file.size(), Bytes(kBlock));
  DiskTransfer write = file.write(0, {});
  EXPECT_TRUE(write.done());
  write.wait();
  file.read(0, {}).wait();
}

TEST_P(BlockFileTest, MisuseIsSeenAtOnce) {
  const AlignedBytes bytes(3 * kBlock);
  BlockFile file(*ops_, slow(), kExtents);
  EXPECT_THROW((void)file.read(2, bytes.span()), std::logic_error) << "not written yet";
  EXPECT_THROW((void)file.write(1, bytes.span()), std::logic_error) << "too long";
  EXPECT_THROW((void)file.write(1, bytes.span().subspan(8, kBlock)), std::logic_error) << "not aligned";
  EXPECT_THROW((void)file.write(3, bytes.span()), std::out_of_range);
  const DiskTransfer write = file.write(2, bytes.span());
  EXPECT_THROW((void)file.read(2, bytes.span()), std::logic_error) << "it is being written";
  EXPECT_FALSE(write.ended_at().has_value());
  BlockFile::Options odd = options();
  odd.block = Bytes(kBlock + 512);
  EXPECT_THROW(BlockFile(*ops_, odd, kExtents), std::logic_error);
}

TEST_P(BlockFileTest, ClosingEndsWhatIsNotComplete) {
  const AlignedBytes bytes(3 * kBlock, 1), block(kBlock, 2);
  std::vector<DiskTransfer> writes;
  {
    BlockFile file(*ops_, slow(), kExtents);
    writes = {file.write(2, bytes.span()), file.write(1, block.span())};
  }
  for (DiskTransfer& write : writes) {
    EXPECT_TRUE(write.done());
    const std::string closed = "73|DIR/states: closed before this transfer ended|";
    EXPECT_EQ(error_of([&] { write.wait(); }), closed);
    EXPECT_EQ(error_of([&] { write.wait(); }), closed) << "it can be asked again";
  }
}

// --- faults of a disk --------------------------------------------------------------------------------------

TEST_P(BlockFileTest, InterruptedAndBusyRequestsAreRepeated) {
  for (const Kind kind : {Kind::read, Kind::write}) {
    for (const int error : {EINTR, EAGAIN}) {
      BlockFile file(*ops_,
                     with({.kind = kind, .what = What::answers, .value = -error, .nth = 1, .times = 5}),
                     kExtents);
      write_all(file, 1);
      expect_all(file, 1);
      EXPECT_EQ(file.counts().repeated, 5);
    }
  }
}

TEST_P(BlockFileTest, ShortTransfersAreContinued) {
  // After 100 bytes no aligned request can continue, so the whole block moves again.
  for (const std::int64_t moved : {std::int64_t{100}, kBlockAlign, kBlockAlign + 100}) {
    for (const Kind kind : {Kind::read, Kind::write}) {
      BlockFile::Options one_by_one = with({.kind = kind, .what = What::cuts, .value = moved, .times = 2});
      one_by_one.depth = 1;  // so that both cuts hit the first block
      BlockFile file(*ops_, one_by_one, kExtents);
      write_all(file, 1);
      expect_all(file, 1);
      EXPECT_EQ(file.counts().continued, 2);
      const Bytes bytes = kind == Kind::read ? file.counts().read : file.counts().written;
      EXPECT_EQ(bytes.value(), kFileBytes + 2 * (moved % kBlockAlign)) << moved;
    }
  }
}

TEST_P(BlockFileTest, ManyShortTransfersAreProgress) {
  constexpr Bytes kLarge(1100 * kBlockAlign);
  BlockFile::Options pages =
      with({.kind = Kind::write, .what = What::cuts, .value = kBlockAlign, .times = kAlways});
  pages.block = kLarge;
  BlockFile file(*ops_, pages, {kLarge});
  const AlignedBytes written(kLarge.value(), 1), read(kLarge.value());
  file.write(0, written.span()).wait();
  file.read(0, read.span()).wait();
  EXPECT_TRUE(read == written);
  EXPECT_EQ(file.counts().continued, 1099);
}

TEST_P(BlockFileTest, WithoutProgressItEnds) {
  const Fault interrupts{.kind = Kind::read, .what = What::answers, .value = -EINTR, .times = kAlways};
  const Fault crawls{.kind = Kind::write, .what = What::cuts, .value = 100, .times = kAlways};
  BlockFile interrupted(*ops_, with(interrupts), kExtents), crawling(*ops_, with(crawls), kExtents);
  write_all(interrupted, 1);
  const std::string read = error_of([&] { expect_all(interrupted, 1); });
  expect_start("65|DIR/states: cannot read 16384 bytes at byte 0: Interrupted system call (EINTR)|", read);
  const std::string write = error_of([&] { write_all(crawling, 1); });
  expect_start("69|DIR/states: cannot write ", write);
  EXPECT_NE(write.find("Input/output error (EIO)"), std::string::npos) << write;
}

struct Refusal {
  const char* name;
  Fault fault;
  const char* error;
};
// Request 2 of a round of 7 is the last block of extent 0, 8192 bytes at byte 32768. A run has begun after
// its first round of writes, so the second round's errors have another exit code.
const Refusal kRefusals[] = {
    {"a full disk before the start",
     {.kind = Kind::write, .what = What::answers, .value = -ENOSPC, .nth = 2},
     "69|DIR/states: cannot write 8192 bytes at byte 32768: No space left on device (ENOSPC); the file takes "
     "106.50 kB, FREE are free|free space on the file system that holds it, or write elsewhere"},
    {"a full disk later",
     {.kind = Kind::write, .what = What::answers, .value = -ENOSPC, .nth = 7 + 2},
     "73|DIR/states: cannot write 8192 bytes at byte 32768: No space left on device (ENOSPC); the file takes "
     "106.50 kB, FREE are free|free space on the file system that holds it, or write elsewhere"},
    {"a broken disk, writing",
     {.kind = Kind::write, .what = What::answers, .value = -EIO, .nth = 7 + 2},
     "73|DIR/states: cannot write 8192 bytes at byte 32768: Input/output error (EIO); the file takes 106.50 "
     "kB, FREE are free|the device reports an error (see dmesg): use another disk"},
    {"a broken disk, reading",
     {.kind = Kind::read, .what = What::answers, .value = -EIO, .nth = 2},
     "65|DIR/states: cannot read 8192 bytes at byte 32768: Input/output error (EIO)|the device reports an "
     "error (see dmesg): use another disk"},
    {"an error behind a short read",
     {.kind = Kind::read, .what = What::answers, .value = 0, .nth = 2},
     "65|DIR/states: cannot read 8192 bytes at byte 32768: No data available (ENODATA)|check the path and "
     "the file system that holds it"},
    {"a lost write",
     {.kind = Kind::write, .what = What::loses, .nth = 2},
     "65|DIR/states: the 8192 bytes at byte 32768 are not what was written there last: a write was lost, or "
     "somebody changed the file|look for the disk's errors (dmesg), or use another disk"},
    {"a stale block: what the first round wrote",
     {.kind = Kind::write, .what = What::loses, .nth = 7 + 2},
     "65|DIR/states: the 8192 bytes at byte 32768 are not what was written there last: a write was lost, or "
     "somebody changed the file|look for the disk's errors (dmesg), or use another disk"},
    {"a flipped bit",
     {.kind = Kind::read, .what = What::flips, .nth = 2},
     "65|DIR/states: the 8192 bytes at byte 32768 are not what was written there last: a write was lost, or "
     "somebody changed the file|look for the disk's errors (dmesg), or use another disk"},
    {"a broken engine",
     {.kind = Kind::write, .what = What::breaks, .nth = 7 + 2},
     "73|DIR/states: its engine failed: a broken queue|"},
};

TEST_P(BlockFileTest, WhatTheDiskRefusesOrChangesIsNamed) {
  for (const Refusal& refusal : kRefusals) {
    SCOPED_TRACE(refusal.name);
    BlockFile file(*ops_, with(refusal.fault), kExtents);
    EXPECT_EQ(error_of([&] {
                for (const std::uint64_t seed : {1, 10}) {
                  write_all(file, seed);
                  expect_all(file, seed);
                }
              }),
              refusal.error);
  }
}

TEST_P(BlockFileTest, TheRunHasBegunWhenTheLastBlockIsThere) {
  for (const std::int64_t last : {6, 7}) {  // of the first round's 7 blocks; the first of the second
    BlockFile::Options one_by_one =
        with({.kind = Kind::write, .what = What::answers, .value = -ENOSPC, .nth = last});
    one_by_one.depth = 1;
    BlockFile file(*ops_, one_by_one, kExtents);
    const std::string error = error_of([&] { write_all(file, 1), write_all(file, 10); });
    expect_start(last == 6 ? "69|DIR/states: cannot write 16384 bytes at byte 90112: No space"
                           : "73|DIR/states: cannot write 16384 bytes at byte 0: No space",
                 error);
  }
}

TEST_P(BlockFileTest, AFailedTransferDisturbsNoOther) {
  BlockFile file(*ops_, with({.kind = Kind::read, .what = What::answers, .value = -EIO}), kExtents);
  write_all(file, 1);
  AlignedBytes first(file.extent_bytes(0).value()), second(kBlock);
  DiskTransfer bad = file.read(0, first.span()), good = file.read(1, second.span());
  EXPECT_THROW(bad.wait(), InputError);
  good.wait();
  EXPECT_TRUE(bad.ended_at().has_value() && good.ended_at().has_value());
  EXPECT_TRUE(second == AlignedBytes(kBlock, 2));
  expect_all(file, 1);
}

TEST_P(BlockFileTest, ABrokenEngineFailsAllTransfers) {
  BlockFile file(*ops_, with({.kind = Kind::read, .what = What::breaks}), kExtents);
  write_all(file, 1);
  const AlignedBytes a(file.extent_bytes(0).value()), b(kBlock);
  std::vector<DiskTransfer> reads = {file.read(0, a.span()), file.read(1, b.span())};
  for (DiskTransfer& read : reads) EXPECT_THROW(read.wait(), InputError);
  EXPECT_THROW(file.read(1, b.span()).wait(), InputError) << "and those that come later";
}

TEST_P(BlockFileTest, WithoutSumsNobodySeesIt) {
  BlockFile::Options unsafe = with({.kind = Kind::write, .what = What::loses, .nth = 9});
  unsafe.verify = false;
  BlockFile file(*ops_, unsafe, kExtents);
  write_all(file, 1);
  write_all(file, 10);
  AlignedBytes read(file.extent_bytes(0).value());
  file.read(0, read.span()).wait();
  EXPECT_FALSE(read == AlignedBytes(40'960, 10));
}

/// File operations that keep a second handle on the file, so that a test can look into it.
class SpyingFileOps final : public HookedFileOps {
 public:
  using HookedFileOps::HookedFileOps;
  std::unique_ptr<File> spy;

 protected:
  void before(const FileCall& call) override {
    if (call.op == FileOp::allocate) spy = call.file->again();
  }
};

TEST_P(BlockFileTest, SomebodyElseWritesIntoTheFile) {
  SpyingFileOps spying(*ops_);
  BlockFile file(spying, options(), kExtents);
  write_all(file, 1);
  const AlignedBytes page(kBlockAlign, 77);
  spying.spy->write_at(page.span(), Bytes(40'960 + 2 * kBlockAlign));
  expect_start("65|DIR/states: the 16384 bytes at byte 40960 are not what was ",
               error_of([&] { expect_all(file, 1); }));
}

// --- refusals of the machine -------------------------------------------------------------------------------

/// File operations of a file system that lacks what the real one offers.
class PoorFileOps final : public HookedFileOps {
 public:
  PoorFileOps(FileOps& inner, bool names_all, bool lies)
      : HookedFileOps(inner), names_(names_all), lies_(lies) {}
  std::unique_ptr<File> create_unnamed(const Path& path) override {
    return names_ ? nullptr : HookedFileOps::create_unnamed(path);
  }
  FreeSpace free_space(const Path& path) override {
    const FreeSpace free = HookedFileOps::free_space(path);
    return lies_ ? FreeSpace{Bytes(std::int64_t{1} << 50), free.files} : free;
  }

 private:
  bool names_, lies_;
};

TEST_P(BlockFileTest, WithoutUnnamedFilesTheNameGoesAtOnce) {
  ops_->create(dir_ / ".states.tmp-0");  // of a run that was killed in between
  PoorFileOps poor(*ops_, true, false);
  BlockFile first(poor, options(), kExtents), second(poor, options(), kExtents);
  EXPECT_TRUE(ops_->list(dir_.path()).empty());
  write_all(first, 1);
  write_all(second, 10);
  expect_all(first, 1);
  expect_all(second, 10);
}

TEST_P(BlockFileTest, TheStartIsRefusedWithNeededAndFree) {
  const std::string full = std::string(": No space left on device (ENOSPC)") + kRoom +
                           "|free space on the file system that holds it, or write elsewhere";
  FaultyFileOps no_room(*ops_, {.op = FileOp::allocate, .error = ENOSPC});
  EXPECT_EQ(error_of([&] { BlockFile(no_room, options(), kExtents); }),
            "69|DIR/states: cannot allocate" + full);
  const Bytes too_much = ops_->free_space(dir_.path()).bytes + Bytes(1 << 30);
  expect_start("69|DIR/states: cannot make a file of this size: No space left on device (ENOSPC); the ",
               error_of([&] { BlockFile(*ops_, options(), {too_much}); }));
  BlockFile::Options elsewhere = options();
  elsewhere.path = dir_ / "no/states";
  EXPECT_EQ(error_of([&] { BlockFile(*ops_, elsewhere, kExtents); }),
            "69|DIR/no/states: cannot create: No such file or directory (ENOENT); the file takes 106.50 "
            "kB|create its "
            "directory: mkdir -p DIR/no");
  EXPECT_TRUE(ops_->list(dir_.path()).empty());
}

TEST_P(BlockFileTest, ALimitOfFileSizesIsNamedBeforeItKills) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit low{kFileBytes - 1, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  const std::string error = error_of([&] { BlockFile(*ops_, options(), kExtents); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_EQ(error, std::string("69|DIR/states: cannot allocate 106496 bytes: File too large (EFBIG)") +
                       kRoom +
                       "|raise the limit of a file's size (ulimit -f unlimited), or use another file system");
}

TEST_P(BlockFileTest, ARefusedEngineIsOneLine) {
  bool refused = false;
  std::vector<std::string> notes;
  std::thread([&] {
    refused = refuse_calls({SYS_io_uring_setup}, EPERM);
    if (!refused) return;
    BlockFile file(*ops_, options(), kExtents);
    write_all(file, 1);
    expect_all(file, 1);
    notes = file.notes();
    EXPECT_EQ(file.engine(), IoEngine::threads);
  }).join();
  if (!refused) GTEST_SKIP() << "no seccomp here";
  std::erase_if(notes, [](const std::string& note) { return note.find("O_DIRECT") != std::string::npos; });
  EXPECT_EQ(notes.size(), GetParam() == IoEngine::io_uring ? 1U : 0U);
}

/// Runs `test` in a thread that sees a tmpfs of `bytes` at `path`. False if this user may not mount one.
template <class Test>
bool on_tmpfs(const Path& path, std::int64_t bytes, Test test) {
  bool mounted = false;
  std::thread([&] {
    const std::string size = "size=" + std::to_string(bytes);
    mounted = ::unshare(CLONE_NEWNS) == 0 &&
              ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
              ::mount("none", path.c_str(), "tmpfs", 0, size.c_str()) == 0;
    if (mounted) test();
  }).join();
  return mounted;
}

TEST_P(BlockFileTest, InMemoryThereIsNoDirectWay) {
  const bool mounted = on_tmpfs(dir_.path(), 2 * kFileBytes, [&] {
    BlockFile file(*ops_, options(), kExtents);
    write_all(file, 1);
    expect_all(file, 1);
    ASSERT_FALSE(file.notes().empty());
    EXPECT_EQ(file.notes().front(),
              dir_.path().string() +
                  ": no O_DIRECT there: transfers go through the page cache, which takes memory");
  });
  if (!mounted) GTEST_SKIP() << "this user may not mount";
}

TEST_P(BlockFileTest, ATmpfsOfHalfTheSize) {
  const bool mounted = on_tmpfs(dir_.path(), kFileBytes / 2, [&] {
    const std::string full = ": No space left on device (ENOSPC)";
    const std::string fix =
        std::string(kRoom) + "|free space on the file system that holds it, or write elsewhere";
    EXPECT_EQ(error_of([&] { BlockFile(*ops_, options(), kExtents); }),
              "69|DIR/states: cannot make a file of this size" + full + fix);
    PoorFileOps lying(*ops_, false, true);
    EXPECT_EQ(error_of([&] { BlockFile(lying, options(), kExtents); }),
              "69|DIR/states: cannot allocate 106496 bytes" + full + fix);
    EXPECT_TRUE(ops_->list(dir_.path()).empty());
  });
  if (!mounted) GTEST_SKIP() << "this user may not mount";
}

TEST_P(BlockFileTest, AFullDiskThatCannotAllocateShowsWhileTheStatesAreFirstWritten) {
  bool refused = false;
  const bool mounted = on_tmpfs(dir_.path(), kFileBytes / 2, [&] {
    refused = refuse_calls({SYS_fallocate}, EOPNOTSUPP);
    if (!refused) return;
    PoorFileOps lying(*ops_, false, true);
    BlockFile file(lying, options(), kExtents);
    const std::string error = error_of([&] { write_all(file, 1); });
    expect_start("69|DIR/states: cannot write ", error);
    EXPECT_NE(error.find("No space left on device (ENOSPC); the file takes 106.50 kB"), std::string::npos)
        << error;
  });
  if (!mounted || !refused) GTEST_SKIP() << "this user may not mount, or there is no seccomp";
}

INSTANTIATE_TEST_SUITE_P(Engines, BlockFileTest, ::testing::Values(IoEngine::threads, IoEngine::io_uring),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace sc
