// A decorator of Copies that records them.
#pragma once

#include <memory>

#include "common/comm/copies/copies.h"
#include "common/watch/comm_record.h"

namespace sc {

/// Enters every copy in the rank's record, next to its communicators' operations, so that plan, trace and
/// watchdog see copies like messages.
class RecordingCopies final : public Copies {
 public:
  /// `record` comes from RecordingCommunicator::shared_record().
  RecordingCopies(std::unique_ptr<Copies> inner, std::shared_ptr<CommRecord> record);
  [[nodiscard]] std::int64_t dropped_tickets() const override { return inner_->dropped_tickets(); }
  [[nodiscard]] After issued() override { return inner_->issued(); }
  Ticket issue(const Operation& op, const at::Tensor& from, const at::Tensor& to, OfStep of_step,
               const After& after) override;

 private:
  const std::unique_ptr<Copies> inner_;
  const std::shared_ptr<CommRecord> record_;
};

}  // namespace sc
