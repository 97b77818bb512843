// Writes a run's checkpoints while it trains.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/comm/communicator.h"
#include "common/records/record.h"
#include "common/run/resume.h"
#include "common/run/train_job.h"
#include "common/run/watched_files.h"
#include "common/storage/atomic_dir.h"
#include "common/storage/checkpoint/generations.h"
#include "common/strategy/saved_state.h"

namespace sc::detail {

/// Saves at given steps. All ranks must call the same functions at the same steps.
class Saver {
 public:
  struct Parts {
    const TrainJob& job;
    Strategy& strategy;
    Communicator& comm;
    Ledger& ledger;
    WatchedFiles& files;
    Path tokens;   // the file that is trained on
    Path resumed;  // the checkpoint that the run resumes from; empty: none
  };
  /// Checks that checkpoints can be written.
  ///   Errors  InputError on all ranks: the directory holds checkpoints that the run does not continue (exit
  ///           64), or a rank cannot write one there, or there is no space (exit 73).
  explicit Saver(const Parts& parts);
  ~Saver();

  /// Whether a checkpoint is due after `done` steps.
  [[nodiscard]] bool due(std::int64_t done) const {
    return parts_.job.line.checkpoints.every > 0 && done % parts_.job.line.checkpoints.every == 0;
  }
  /// Saves, between two steps. Returns when the checkpoint is durable, or with --save-async on when all
  /// values have been copied.
  ///   Errors  InputError (exit 73) on all ranks, naming those that failed; older checkpoints are unchanged.
  void save(const Position& position);
  /// Finishes, between two steps, a save that all ranks have written; with `must_end` waits until they have.
  void settle(bool must_end);
  [[nodiscard]] const std::vector<SaveRecord>& saves() const { return saves_; }

 private:
  struct InFlight;
  void refuse_others();
  void require_place();
  void begin(const Position& position);
  void write();
  /// Waits until no rank writes any more. Collective.
  void wait();
  void commit();
  void require_finite();
  void remove_old(std::int64_t newest);
  [[nodiscard]] checkpoint::Manifest manifest(const Position& position, const std::vector<std::string>& sums);
  /// An error of this rank; an empty text means that there was none.
  struct Trouble {
    std::string text, fix;
    void note(const InputError& refused);
  };
  /// Runs act() if this rank takes part, and returns its error.
  static Trouble trouble_of(bool acts, const std::function<void()>& act);
  /// Runs act() on the ranks that take part; the others wait. Throws on all ranks if one of them failed.
  void together(const char* what, bool acts, const std::function<void()>& act);
  /// Throws on all ranks if one of them has an error.
  void agree(const Trouble& mine, const char* what);
  [[nodiscard]] std::string fix_for_all(const Trouble& mine) const;

  const Parts parts_;
  const std::unique_ptr<FileOps> crashing_;  // null without --crash-at
  FileOps* const ops_;
  const Path dir_;
  at::Tensor copy_;  // bytes; undefined without --save-async
  std::optional<checkpoint::DataFingerprint> data_;
  std::unique_ptr<InFlight> in_flight_;
  std::vector<SaveRecord> saves_;
  std::set<Path> stays_;  // old checkpoints that could not be removed, each reported once
};

}  // namespace sc::detail
