// A communicator that remembers what was asked of it.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "common/comm/communicator.h"
#include "common/watch/comm_record.h"

namespace sc {

/// Decorator round any communicator: every operation goes into a CommRecord, which splits share. Adds no
/// operation of its own.
///   Phases  "setup" at first; set_phase takes "setup", "train", "eval" or "check".
///   Counts  an operation belongs to the phase and step in which it was issued; waiting time is counted as it
///           passes.
///   Errors  set_phase throws std::invalid_argument for another phase.
class RecordingCommunicator : public Communicator {
 public:
  /// `inner` outlives this.
  explicit RecordingCommunicator(Communicator& inner, const RecordOptions& options = {});
  explicit RecordingCommunicator(std::unique_ptr<Communicator> inner, const RecordOptions& options = {});

  void set_phase(std::string_view phase);
  void set_step(std::int64_t step) { record_->set_step(step); }
  [[nodiscard]] CommPlan recorded(std::string_view phase, std::int64_t step) const;
  /// Everything else that is known.
  [[nodiscard]] CommRecord& record() { return *record_; }
  [[nodiscard]] const CommRecord& record() const { return *record_; }
  /// For who else records on this rank.
  [[nodiscard]] const std::shared_ptr<CommRecord>& shared_record() const { return record_; }

  [[nodiscard]] Rank rank() const override { return inner_->rank(); }
  [[nodiscard]] WorldSize size() const override { return inner_->size(); }
  void barrier() override;
  void abort() noexcept override { inner_->abort(); }
  std::unique_ptr<Communicator> split(int color) override;
  std::shared_ptr<void> window(Bytes bytes, WindowUse use) override;
  Ticket issue(const Operation& op, const at::Tensor& from, const at::Tensor& to,
               std::optional<Rank> peer) override;
  [[nodiscard]] std::int64_t dropped_tickets() const override { return inner_->dropped_tickets(); }

 private:
  RecordingCommunicator(std::unique_ptr<Communicator> inner, std::shared_ptr<CommRecord> record,
                        std::vector<Rank> members);
  Meeting next_collective();
  [[nodiscard]] Meeting message_with(Rank peer) const;
  [[nodiscard]] int stride() const { return group_.count > 0 ? group_.stride : 0; }
  /// Runs `block` as an operation that is waited for at once.
  template <class Block>
  void record_blocking(Block&& block);

  std::unique_ptr<Communicator> owned_;
  Communicator* inner_;
  std::shared_ptr<CommRecord> record_;
  std::vector<Rank> members_;  // of the group, as ranks of the world
  RankSet group_;
  std::int64_t collectives_ = 0;
};

/// "train" -> Phase::train.  Errors: std::invalid_argument.
Phase phase_from(std::string_view name);

}  // namespace sc
