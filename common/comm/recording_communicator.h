// A communicator that records its operations.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "common/comm/forwarding_communicator.h"
#include "common/watch/comm_record.h"

namespace sc {

/// Enters every operation in a CommRecord, which splits share. Issues no operations of its own.
///   Phases  "setup" at first; set_phase takes "setup", "train", "eval" or "check", and throws
///           std::invalid_argument for anything else.
///   Counts  an operation belongs to the phase and step in which it was issued; waiting time counts for the
///           phase and step in which the wait happens.
class RecordingCommunicator : public ForwardingCommunicator {
 public:
  /// Decorates `inner`, which must outlive this object.
  explicit RecordingCommunicator(Communicator& inner, const RecordOptions& options = {});
  explicit RecordingCommunicator(std::unique_ptr<Communicator> owned, const RecordOptions& options = {});

  void set_phase(std::string_view phase);
  void set_step(std::int64_t step) { record_->set_step(step); }
  [[nodiscard]] CommPlan recorded(std::string_view phase, std::int64_t step) const;
  [[nodiscard]] CommRecord& record() { return *record_; }
  [[nodiscard]] const CommRecord& record() const { return *record_; }
  [[nodiscard]] const std::shared_ptr<CommRecord>& shared_record() const { return record_; }

  void barrier() override;
  std::unique_ptr<Communicator> split(int color) override;
  std::shared_ptr<void> window(Bytes bytes, WindowUse use) override;
  Ticket issue(const Operation& op, const at::Tensor& from, const at::Tensor& to,
               std::optional<Rank> peer) override;

 private:
  RecordingCommunicator(std::unique_ptr<Communicator> owned, std::shared_ptr<CommRecord> record,
                        std::vector<Rank> members);
  Meeting next_collective();
  [[nodiscard]] int stride() const { return group_.count > 0 ? group_.stride : 0; }
  /// Records `block`, which blocks until it is done, as an operation that is waited for at once.
  template <class Block>
  void record_blocking(Block&& block);

  std::shared_ptr<CommRecord> record_;
  std::vector<Rank> members_;  // members of the group, as ranks of the world
  RankSet group_;
  std::int64_t collectives_ = 0;
};

/// The phase that a word names.
///   Errors  std::invalid_argument for any other word.
Phase phase_from(std::string_view name);

}  // namespace sc
