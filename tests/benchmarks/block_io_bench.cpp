// Measures GB/s (10^9 bytes) of a disk, sustained: reads, writes, and both at once, by engine, block and
// requests in flight; then a BlockFile's, with and without checksums, as lesson 06 uses it. The file is first
// written in full: a disk reads zeros that were never written much faster.
//   block_io_benchmark DIR [file in GB, default 8] [seconds per number, default 3] [mixed]
//     mixed  only the rate of both at once, in lesson 06's blocks, and only its way of using a file
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "common/storage/atomic_dir.h"
#include "common/storage/block_file.h"
#include "tests/storage/aligned_bytes.h"

namespace {

using sc::BlockRequest, sc::Bytes, sc::IoEngine;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kKiB = 1024, kMiB = 1024 * kKiB;
constexpr IoEngine kEngines[] = {IoEngine::threads, IoEngine::io_uring};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

enum class Mode { read, write, mixed };
struct Load {
  Mode mode;
  std::int64_t block;
  int depth;
};

/// The rate of going through the file in order, again and again, until the time is over or (once) the file
/// is.
double gb_per_second(sc::BlockIo& io, const Load& load, std::int64_t file_bytes, double seconds,
                     bool once = false) {
  const sc::test::AlignedBytes memory(load.block * load.depth, 7);
  const auto begin = Clock::now();
  std::int64_t submitted = 0, moved = 0;
  const auto submit = [&](std::uint64_t slot) {
    const std::int64_t at = submitted * load.block % (file_bytes / load.block * load.block);
    const bool reads = load.mode == Mode::read || (load.mode == Mode::mixed && submitted % 2 == 0);
    io.submit({reads ? BlockRequest::Kind::read : BlockRequest::Kind::write, Bytes(at),
               memory.span().subspan(slot * static_cast<std::size_t>(load.block),
                                     static_cast<std::size_t>(load.block)),
               slot});
    ++submitted;
  };
  for (int slot = 0; slot < load.depth; ++slot) submit(static_cast<std::uint64_t>(slot));
  for (std::int64_t reaped = 0; reaped < submitted; ++reaped) {
    const sc::BlockResult result = io.reap();
    if (result.res != load.block) {
      std::printf("a request of %lld bytes: %lld\n", static_cast<long long>(load.block),
                  static_cast<long long>(result.res));
      std::exit(1);
    }
    moved += result.res;
    const bool more = once ? submitted * load.block < file_bytes : seconds_since(begin) < seconds;
    if (more) submit(result.id);
  }
  return static_cast<double>(moved) / seconds_since(begin) * 1e-9;
}

void engines(sc::FileOps& ops, const sc::Path& dir, std::int64_t file_bytes, double seconds,
             bool only_mixed) {
  const auto file = sc::create_unnamed(ops, dir / "block_io_benchmark");
  file->allocate(Bytes(file_bytes));
  std::printf("%s: %s, file of %.1f GB\n", dir.c_str(), file->set_direct(true) ? "O_DIRECT" : "page cache",
              static_cast<double>(file_bytes) * 1e-9);
  const sc::OpenedIo first = sc::open_block_io(IoEngine::threads, *file, 8);
  std::printf("first pass of writes: %.2f GB/s\n",
              gb_per_second(*first.io, {Mode::write, kMiB, 8}, file_bytes, 0, true));
  if (only_mixed) {
    for (const IoEngine engine : kEngines) {
      const sc::OpenedIo opened = sc::open_block_io(engine, *file, 16);
      std::printf("mixed, %s, block 1024 KiB, depth 16: %.2f GB/s\n", sc::name_of(opened.engine).data(),
                  gb_per_second(*opened.io, {Mode::mixed, kMiB, 16}, file_bytes, seconds));
    }
    return;
  }
  std::printf("%-9s %9s %6s %6s %6s %6s\n", "engine", "block KiB", "depth", "read", "write", "mixed");
  for (const IoEngine engine : kEngines)
    for (const std::int64_t block : {128 * kKiB, 512 * kKiB, kMiB, 4 * kMiB})
      for (const int depth : {1, 2, 4, 8, 16, 32}) {
        const sc::OpenedIo opened = sc::open_block_io(engine, *file, depth);
        if (opened.engine != engine) {
          std::printf("%s\n", opened.refusal.c_str());
          return;
        }
        std::printf("%-9s %9lld %6d", sc::name_of(engine).data(), static_cast<long long>(block / kKiB),
                    depth);
        for (const Mode mode : {Mode::read, Mode::write, Mode::mixed}) {
          std::printf(" %6.2f", gb_per_second(*opened.io, {mode, block, depth}, file_bytes, seconds));
          std::fflush(stdout);
        }
        std::printf("\n");
      }
}

/// Reads each extent and writes it back, three reads ahead, as lesson 06 does with optimizer states.
void block_file(sc::FileOps& ops, const sc::BlockFile::Options& options, std::int64_t file_bytes,
                double seconds) {
  constexpr std::int64_t kExtent = 64 * kMiB;
  constexpr std::size_t kBuffers = 6, kAhead = 3;
  const sc::test::AlignedBytes memory(kExtent * static_cast<std::int64_t>(kBuffers), 7);
  const auto buffer = [&](std::size_t i) { return memory.span().subspan(i % kBuffers * kExtent, kExtent); };
  const std::size_t extents = std::max<std::size_t>(kBuffers, static_cast<std::size_t>(file_bytes / kExtent));
  sc::BlockFile file(ops, options, std::vector<Bytes>(extents, Bytes(kExtent)));
  for (std::size_t i = 0; i < extents; ++i) file.write(i, buffer(i)).wait();
  const sc::BlockFile::Counts before = file.counts();
  std::vector<sc::DiskTransfer> reads(kBuffers), writes(kBuffers);
  const auto begin = Clock::now();
  for (std::size_t i = 0; seconds_since(begin) < seconds || i % extents < kAhead; ++i) {
    writes[i % kBuffers].wait();
    reads[i % kBuffers] = file.read(i % extents, buffer(i));
    if (i < kAhead) continue;
    const std::size_t ready = i - kAhead;
    reads[ready % kBuffers].wait();
    writes[ready % kBuffers] = file.write(ready % extents, buffer(ready));
  }
  for (std::size_t i = 0; i < kBuffers; ++i) reads[i].wait(), writes[i].wait();
  const double took = seconds_since(begin);
  const sc::BlockFile::Counts counts = file.counts();
  const Bytes moved = counts.read + counts.written - before.read - before.written;
  std::printf(
      "BlockFile %-9s block %lld KiB, depth %2d, sums %-3s: mixed %.2f GB/s; sums %.0f %% of its thread\n",
      sc::name_of(file.engine()).data(), static_cast<long long>(options.block.value() / kKiB), options.depth,
      options.verify ? "on" : "off", static_cast<double>(moved.value()) / took * 1e-9,
      (counts.sum_seconds - before.sum_seconds) / took * 100);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::printf("usage: block_io_benchmark DIR [file in GB] [seconds a number] [mixed]\n");
    return 64;
  }
  const auto bytes =
      sc::round_up(static_cast<std::int64_t>((argc > 2 ? std::atof(argv[2]) : 8) * 1e9), 4 * kMiB);
  const double seconds = argc > 3 ? std::atof(argv[3]) : 3;
  const auto ops = sc::posix_file_ops();
  try {
    const bool only_mixed = argc > 4 && std::string_view(argv[4]) == "mixed";
    engines(*ops, argv[1], bytes, seconds, only_mixed);
    if (only_mixed) {
      block_file(*ops, {.path = sc::Path(argv[1]) / "states", .depth = 16, .engine = IoEngine::io_uring},
                 bytes, seconds);
      return 0;
    }
    for (const IoEngine engine : kEngines)
      for (const int depth : {8, 32})
        for (const bool verify : {true, false})
          block_file(
              *ops,
              {.path = sc::Path(argv[1]) / "states", .depth = depth, .engine = engine, .verify = verify},
              bytes, 3 * seconds);
  } catch (const sc::InputError& error) {
    std::printf("error: %s\n", error.what());
    return static_cast<int>(error.code());
  }
  return 0;
}
