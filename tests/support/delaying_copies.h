// Copies between host and device with random delays, so that a missing wait always shows.
#pragma once

#include <memory>

#include "common/comm/completion.h"
#include "common/comm/copies/copies.h"
#include "tests/support/delaying_worker.h"

namespace sc {

/// Delays copies as DelayingCommunicator delays operations: a copy's target is NaN until somebody waits for
/// the copy's ticket or end.
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
  [[nodiscard]] After issued() override { return inner_->issued(); }
  Ticket issue(const Operation& op, const at::Tensor& from, const at::Tensor& to, OfStep of_step,
               const After& after) override {
    const bool down = op.kind == CommKind::to_host;
    SetApart apart;
    const at::Tensor source = apart.read(from);
    const at::Tensor into = apart.written(to);
    return (down ? down_ : up_).post(std::move(apart), [this, op, source, into, of_step, after] {
      return inner_->issue(op, source, into, of_step, after);
    });
  }

 private:
  const std::unique_ptr<Copies> inner_;
  DelayingWorker down_, up_;  // after inner_: they end first
};

}  // namespace sc
