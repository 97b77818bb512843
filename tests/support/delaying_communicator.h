// Random delays before an operation starts and before it is seen to end: a missing wait stops being lucky.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "common/comm/forwarding_communicator.h"

namespace sc {

class DelayingWorker;
class DropCounter;

/// Decorator for tests. Operations go to a thread of this communicator, which hands them to `inner` in issue
/// order, each after a random pause; wait() pauses again. An operation therefore really happens late. It
/// works on copies (SetApart): its result is in the caller's tensor after wait() and not before, however long
/// ago it happened, and 0xff bytes (NaN) are there until then; what it reads must not have changed by then.
/// So a missing wait is seen whatever the clock says. In place, the own slice stays as it was. Tensors must
/// be in host memory.
///   Seeds   pauses are a function of the seed and the order of the operations, between 0 and `longest`. Give
///           ranks different seeds.
///   Errors  wrong arguments are refused when issued; everything else comes from wait(): logic_error, too, if
///           what was being sent has been overwritten.
class DelayingCommunicator : public ForwardingCommunicator {
 public:
  DelayingCommunicator(std::unique_ptr<Communicator> inner, std::uint64_t seed,
                       std::chrono::microseconds longest = std::chrono::microseconds(300));
  ~DelayingCommunicator() override;

  void barrier() override;
  std::unique_ptr<Communicator> split(int color) override;
  std::shared_ptr<void> window(Bytes bytes, WindowUse use) override;
  Ticket issue(const Operation& op, const at::Tensor& from, const at::Tensor& to,
               std::optional<Rank> peer) override;
  [[nodiscard]] std::int64_t dropped_tickets() const override;

 private:
  DelayingCommunicator(std::unique_ptr<Communicator> inner, std::uint64_t seed,
                       std::chrono::microseconds longest, std::shared_ptr<DropCounter> drops);
  std::uint64_t seed_;
  std::chrono::microseconds longest_;
  std::unique_ptr<DelayingWorker> worker_;
};

/// Random delays, other ones on every rank and every time.
std::unique_ptr<Communicator> delayed(std::unique_ptr<Communicator> comm);

}  // namespace sc
