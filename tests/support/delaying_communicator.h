// A communicator with random delays before operations begin and end, so that a missing wait always shows.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "common/comm/forwarding_communicator.h"

namespace sc {

class DelayingWorker;
class DropCounter;

/// Delays the operations of `inner` at random, so that tests notice a missing wait whatever the timing. A
/// thread hands operations to `inner` in issue order, each after a random pause; wait() pauses again.
/// Operations work on copies (SetApart): a result reaches the caller's tensor in wait() and not before, and
/// the tensor holds 0xff bytes (NaN) until then; inputs must not change in the meantime. In place, the rank's
/// own slice stays readable. Tensors must be in host memory.
///   Seeds   pauses, between 0 and `longest`, depend on the seed and the order of operations. Give ranks
///           different seeds.
///   Errors  wrong arguments are refused when issued. All other errors come from wait(), among them
///           logic_error if an input was overwritten.
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

/// `comm` with random delays, different ones for each rank and each call.
std::unique_ptr<Communicator> delayed(std::unique_ptr<Communicator> comm);

}  // namespace sc
