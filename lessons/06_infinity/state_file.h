// A rank's file on the disk, which counts each transfer for a step, waits for it and measures its time.
#pragma once

#include <mutex>
#include <vector>

#include "common/comm/disk/recorded_file.h"
#include "common/offload/update_clock.h"
#include "step_clock.h"

namespace sc {

/// Transfers of an update count for the step after the one that posts it, whose forward waits for them. The
/// strategy's thread and the one that updates both call this class.
class StateFile {
 public:
  /// `updates` outlives the file.
  StateFile(std::shared_ptr<FileOps> file_ops, const BlockFile::Options& options,
            const std::vector<Bytes>& extents, std::shared_ptr<CommRecord> record,
            const UpdateClock& updates);
  OpEnd read(std::size_t extent, std::span<std::byte> into, const What& what, std::int64_t update);
  OpEnd write(std::size_t extent, std::span<const std::byte> from, const What& what, std::int64_t update);
  /// Waits until the transfers of the first `updates` updates have ended. Called by the thread that records.
  void end_updates(std::int64_t updates);
  /// Waits until no transfer is in flight. No other thread may begin one meanwhile.
  void wait();

  /// Transfers through of_this_step() count for the present step, those through uncounted() for none.
  [[nodiscard]] RecordedFile& of_this_step() { return transfers_; }
  [[nodiscard]] BlockFile& uncounted() { return blocks_; }
  [[nodiscard]] StepClock& clock() { return clock_; }
  /// Keeps the ledger's bytes of the file as long as the file is there.
  void keep_reserved(std::vector<std::shared_ptr<void>> bytes) { reserved_ = std::move(bytes); }

 private:
  struct Kept {
    std::int64_t update;
    Ticket ticket;
  };
  OpEnd keep(std::int64_t update, Ticket ticket);

  const std::shared_ptr<FileOps> ops_;
  BlockFile blocks_;
  StepClock clock_;
  RecordedFile transfers_;
  std::vector<std::shared_ptr<void>> reserved_;
  const UpdateClock& updates_;
  std::mutex mutex_;
  /// Transfers that have not been waited for. Both threads use them, under the mutex.
  std::vector<Kept> kept_;
};

}  // namespace sc
