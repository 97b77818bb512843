// The ticket of transports whose operations run on the CPU (Local, Mpi).
#pragma once

#include <utility>

#include "common/comm/communicator.h"
#include "common/comm/completion.h"

namespace sc {

/// Holds this rank's tensors until the wait; the transport holds them while it works on them.
class HostTicket : public TicketState {
 public:
  HostTicket(std::shared_ptr<Completion> end, std::shared_ptr<DropCounter> drops, at::Tensor first,
             at::Tensor second = {})
      : end_(std::move(end)),
        drops_(std::move(drops)),
        first_(std::move(first)),
        second_(std::move(second)) {}
  bool ready() override { return end_->done(); }
  void wait() override { end_->wait(); }
  void dropped() noexcept override { drops_->add(); }
  OpEnd end() override {
    return {[end = end_] { return end->done(); }, [end = end_] { end->wait(); }};
  }
  std::optional<std::chrono::steady_clock::time_point> ended_at() override { return end_->ended_at(); }

 private:
  std::shared_ptr<Completion> end_;
  std::shared_ptr<DropCounter> drops_;
  at::Tensor first_, second_;
};

}  // namespace sc
