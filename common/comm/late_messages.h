// Simulates a slow link.
#pragma once

#include <chrono>
#include <memory>

#include "common/comm/forwarding_communicator.h"

namespace sc {

/// Decorates a CPU communicator: a message arrives `late` after the transport has delivered it. It simulates
/// a link's latency, not its bandwidth: messages do not delay each other. Collectives are not delayed.
class LateMessages : public ForwardingCommunicator {
 public:
  LateMessages(std::unique_ptr<Communicator> inner, std::chrono::nanoseconds late);
  std::unique_ptr<Communicator> split(int color) override;
  Ticket issue(const Operation& op, const at::Tensor& from, const at::Tensor& to,
               std::optional<Rank> peer) override;

 private:
  std::chrono::nanoseconds late_;
};

}  // namespace sc
