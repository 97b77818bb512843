// A communicator that forwards everything to another; decorators derive from it and override some.
#pragma once

#include <memory>
#include <utility>

#include "common/comm/communicator.h"

namespace sc {

class ForwardingCommunicator : public Communicator {
 public:
  /// Forwards to `inner`, which must outlive this object.
  explicit ForwardingCommunicator(Communicator& inner) : inner_(inner) {}
  explicit ForwardingCommunicator(std::unique_ptr<Communicator> inner)
      : owned_(std::move(inner)), inner_(*owned_) {}
  [[nodiscard]] Rank rank() const override { return inner_.rank(); }
  [[nodiscard]] WorldSize size() const override { return inner_.size(); }
  void barrier() override { inner_.barrier(); }
  void abort() noexcept override { inner_.abort(); }
  std::unique_ptr<Communicator> split(int color) override { return inner_.split(color); }
  std::shared_ptr<void> window(Bytes bytes, WindowUse use) override { return inner_.window(bytes, use); }
  Ticket issue(const Operation& op, const at::Tensor& from, const at::Tensor& to,
               std::optional<Rank> peer) override {
    return inner_.issue(op, from, to, peer);
  }
  [[nodiscard]] std::int64_t dropped_tickets() const override { return inner_.dropped_tickets(); }

 protected:
  [[nodiscard]] Communicator& inner() const { return inner_; }

 private:
  const std::unique_ptr<Communicator> owned_;  // null if the inner communicator is not owned
  Communicator& inner_;
};

}  // namespace sc
