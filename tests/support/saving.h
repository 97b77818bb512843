// Checkpoints of a world of threads, written and read as a run does, and runs that go on from another run's
// checkpoint. Header-only, for tests that link `run` and `checkpoint`.
#pragma once

#include <ATen/ops/empty.h>

#include <cstring>
#include <map>

#include "common/run/resume.h"
#include "common/run/saver.h"
#include "common/storage/checkpoint/generations.h"
#include "common/strategy/saved_state.h"
#include "tests/support/harness.h"

namespace sc::test {

/// Writes one checkpoint of a world of threads.
class Saving {
 public:
  ///   dir         must not exist yet
  ///   copies_too  also expects that the copy which --save-async makes equals the bytes written
  Saving(const Path& dir, int world, std::int64_t step, bool copies_too = false)
      : ops_(posix_file_ops(Syncing::skip)),
        copies_too_(copies_too),
        out_(*ops_, dir, AtomicDir::Existing::refuse) {
    manifest_.step = step;
    manifest_.world = world;
    manifest_.lesson = "a test";
    manifest_.files.resize(static_cast<std::size_t>(world));
  }
  /// Writes one rank's file. Every rank calls it between steps.
  void write(Strategy& strategy, Communicator& comm, const StepScalars& scalars) {
    strategy.quiet();
    const detail::SavedState state(strategy, strategy.layout(), comm);
    const checkpoint::FileId id{.step = manifest_.step, .rank = to_int(comm.rank())};
    checkpoint::FileWriter file(*ops_, out_.path(), id, state.entries());
    const std::string pending = strategy.pending();
    std::vector<std::byte> read;
    state.read([&](std::size_t entry, std::span<const std::byte> piece) {
      file.write(entry, piece);
      read.insert(read.end(), piece.begin(), piece.end());
    });
    manifest_.files[static_cast<std::size_t>(id.rank)] = file.finish();
    if (copies_too_) expect_copied(state, read);
    if (id.rank > 0) return;
    const detail::Position position = detail::position_of(scalars, manifest_.step, 0);
    manifest_.updates = position.updates, manifest_.scaler = position.scaler;
    manifest_.extra = pending;
    manifest_.tensors = detail::tensors_of(strategy.layout());
  }
  /// Completes the checkpoint after all ranks have called write().
  void commit() { checkpoint::commit_generation(*ops_, out_, manifest_); }

 private:
  static void expect_copied(const detail::SavedState& state, const std::vector<std::byte>& read) {
    const at::Tensor copy = at::empty({state.bytes().value()}, at::kByte);
    state.copy(copy);
    ASSERT_EQ(static_cast<std::int64_t>(read.size()), copy.numel());
    EXPECT_EQ(std::memcmp(read.data(), copy.const_data_ptr(), read.size()), 0)
        << "what is copied is what is read";
    EXPECT_THROW(state.copy(copy.narrow(0, 0, copy.numel() - 1)), ClaimError);
  }
  const std::unique_ptr<FileOps> ops_;
  const bool copies_too_;
  AtomicDir out_;
  checkpoint::Manifest manifest_;
};

/// The steps of one part of a run, and the saves and evaluations between them.
struct Part {
  std::int64_t first = 0, last = 0;  // steps done before it, and after it
  Path from = {};                    // the checkpoint; of first > 0
  std::int64_t save_every = 0;       // steps, from the run's beginning; 0: never
  Path dir = {};                     // there, the one after step N in N
  std::int64_t evaluate_every = 0;
};
inline Path saved_after(std::int64_t steps, const Path& dir) { return dir / std::to_string(steps); }

/// Runs one part of a run on a world of threads and returns each rank's results.
template <Lesson S>
std::vector<RankResult> run_part(int world, const Workload& w, const typename S::Options& options,
                                 const Part& part, const Wrap& wrap = {}) {
  std::map<std::int64_t, std::unique_ptr<Saving>> saves;
  for (std::int64_t done = part.first + 1; part.save_every > 0 && done <= part.last; ++done)
    if (done % part.save_every == 0)
      saves[done] = std::make_unique<Saving>(saved_after(done, part.dir), world, done);
  const auto begins = [&](const RunShape& shape, Strategy& strategy, const StepScalars& scalars) {
    if (part.first == 0) return;
    const std::unique_ptr<FileOps> ops = posix_file_ops();
    checkpoint::Reader reader(*ops, part.from);
    detail::restore_scalars(reader.manifest(), scalars);
    const std::vector<Batch> last = made_up_step(shape, part.first - 1);
    EXPECT_TRUE(
        strategy.resume({.pending = reader.manifest().extra,
                         .restore = [&] { detail::restore_state(strategy, strategy.layout(), reader); },
                         .last_batches = [&] { return std::span<const Batch>(last); }}))
        << "something was dropped";
  };
  const auto between = [&](Strategy& strategy, Communicator& comm, const StepScalars& scalars,
                           std::int64_t done) {
    if (const auto due = saves.find(done); due != saves.end()) due->second->write(strategy, comm, scalars);
  };
  std::vector<RankResult> results = run_local<S>(world, w, options, part.last, wrap, {},
                                                 {.first_step = part.first,
                                                  .evaluate_every = part.evaluate_every,
                                                  .begins = begins,
                                                  .between = between});
  for (const auto& [done, save] : saves) save->commit();
  return results;
}

}  // namespace sc::test
