#include "common/comm/copies/recording_copies.h"

#include "common/comm/recorded_ticket.h"

namespace sc {

RecordingCopies::RecordingCopies(std::unique_ptr<Copies> inner, std::shared_ptr<CommRecord> record)
    : inner_(std::move(inner)), record_(std::move(record)) {}

Ticket RecordingCopies::copy(const CommOp& op, const at::Tensor& from, const at::Tensor& to, OfStep of_step) {
  const auto issue = [&] {
    at::Tensor into = to;
    return op.kind == CommKind::to_host ? inner_->to_host(from, into) : inner_->to_device(from, into);
  };
  return record_operation(record_, op, Bytes(0), {}, issue, of_step);
}

}  // namespace sc
