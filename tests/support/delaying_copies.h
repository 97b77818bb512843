// Copies that begin late and are seen to end later: a missing wait stops being lucky.
#pragma once

#include <memory>

#include "common/comm/completion.h"
#include "common/comm/copies/copies.h"
#include "tests/support/delaying_worker.h"

namespace sc {

/// Decorator for tests, as DelayingCommunicator: what a copy will write is NaN at once.
class DelayingCopies final : public Copies {
 public:
  DelayingCopies(std::unique_ptr<Copies> inner, std::uint64_t seed,
                 std::chrono::microseconds longest = std::chrono::microseconds(300))
      : inner_(std::move(inner)),
        down_(seed, longest, std::make_shared<DropCounter>()),
        up_(seed * 31 + 1, longest, std::make_shared<DropCounter>()) {}
  Ticket to_host(const at::Tensor& device, at::Tensor& host) override {
    check_copy(CommKind::to_host, device, host);
    poison(host);
    return down_.post([this, device, host]() mutable { return inner_->to_host(device, host); });
  }
  Ticket to_device(const at::Tensor& host, at::Tensor& device) override {
    check_copy(CommKind::to_device, host, device);
    poison(device);
    return up_.post([this, host, device]() mutable { return inner_->to_device(host, device); });
  }
  [[nodiscard]] std::int64_t dropped_tickets() const override {
    return down_.drops()->count() + up_.drops()->count();
  }

 private:
  const std::unique_ptr<Copies> inner_;
  DelayingWorker down_, up_;  // after inner_: they end first
};

}  // namespace sc
