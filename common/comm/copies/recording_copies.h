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
  Ticket to_host(const at::Tensor& device, at::Tensor& host) override;
  Ticket to_device(const at::Tensor& host, at::Tensor& device) override;
  [[nodiscard]] std::int64_t dropped_tickets() const override { return inner_->dropped_tickets(); }

 private:
  const std::unique_ptr<Copies> inner_;
  const std::shared_ptr<CommRecord> record_;
};

}  // namespace sc
