#include "common/comm/late_messages.h"

#include <thread>
#include <utility>

namespace sc {
namespace {

using Clock = std::chrono::steady_clock;

class LateTicket : public TicketState {
 public:
  LateTicket(std::unique_ptr<TicketState> inner, std::chrono::nanoseconds late)
      : inner_(std::move(inner)), late_(late) {}
  bool ready() override { return inner_->ready() && arrives() <= Clock::now(); }
  void wait() override {
    inner_->wait();
    std::this_thread::sleep_until(arrives());
  }
  void dropped() noexcept override { inner_->dropped(); }
  std::optional<Clock::time_point> ended_at() override { return arrives(); }

 private:
  Clock::time_point arrives() { return inner_->ended_at().value_or(Clock::now()) + late_; }

  std::unique_ptr<TicketState> inner_;
  const std::chrono::nanoseconds late_;
};

}  // namespace

LateMessages::LateMessages(std::unique_ptr<Communicator> inner, std::chrono::nanoseconds late)
    : ForwardingCommunicator(std::move(inner)), late_(late) {}

std::unique_ptr<Communicator> LateMessages::split(int color) {
  std::unique_ptr<Communicator> part = inner().split(color);
  return part ? std::make_unique<LateMessages>(std::move(part), late_) : nullptr;
}

Ticket LateMessages::issue(const Operation& op, const at::Tensor& from, const at::Tensor& to,
                           std::optional<Rank> peer) {
  Ticket ticket = inner().issue(op, from, to, peer);
  if (op.kind != CommKind::recv) return ticket;
  return Ticket(std::make_unique<LateTicket>(ticket.release(), late_));
}

}  // namespace sc
