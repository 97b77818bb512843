// A slow link, for a machine that has none.
#pragma once

#include <chrono>
#include <memory>

#include "common/comm/forwarding_communicator.h"

namespace sc {

/// Round a communicator of the CPU: a message arrives `late` after the transport has delivered it. That is a
/// link's latency, without a limit of its bandwidth: messages do not hold each other up. Collectives are as
/// fast as before.
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
