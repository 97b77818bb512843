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
  [[nodiscard]] std::int64_t dropped_tickets() const override {
    return down_.drops()->count() + up_.drops()->count();
  }

 private:
  Ticket copy(const CommOp& op, const at::Tensor& from, const at::Tensor& to, OfStep /*of_step*/) override {
    poison(to);
    const bool down = op.kind == CommKind::to_host;
    return (down ? down_ : up_).post([this, down, from, into = at::Tensor(to)]() mutable {
      return down ? inner_->to_host(from, into) : inner_->to_device(from, into);
    });
  }

  const std::unique_ptr<Copies> inner_;
  DelayingWorker down_, up_;  // after inner_: they end first
};

}  // namespace sc
