// Copies that remember what was asked of them.
#pragma once

#include <memory>

#include "common/comm/copies/copies.h"
#include "common/watch/comm_record.h"

namespace sc {

/// Decorator round any copies: every copy goes into the record, which the communicators of the rank share, so
/// that plan, trace and watchdog see it like a message.
class RecordingCopies final : public Copies {
 public:
  /// RecordingCommunicator::shared_record
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
