#include "common/comm/copies/recording_copies.h"

#include "common/comm/recorded_ticket.h"

namespace sc {

RecordingCopies::RecordingCopies(std::unique_ptr<Copies> inner, std::shared_ptr<CommRecord> record)
    : inner_(std::move(inner)), record_(std::move(record)) {}

Ticket RecordingCopies::to_host(const at::Tensor& device, at::Tensor& host) {
  const CommOp op = check_copy(CommKind::to_host, device, host);
  return record_operation(record_, op, Bytes(0), {}, [&] { return inner_->to_host(device, host); });
}

Ticket RecordingCopies::to_device(const at::Tensor& host, at::Tensor& device) {
  const CommOp op = check_copy(CommKind::to_device, host, device);
  return record_operation(record_, op, Bytes(0), {}, [&] { return inner_->to_device(host, device); });
}

}  // namespace sc
