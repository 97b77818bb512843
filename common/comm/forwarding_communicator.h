// A communicator that hands everything to another: a decorator overrides the operations that it is about.
#pragma once

#include "common/comm/communicator.h"

namespace sc {

/// `inner` must outlive it.
class ForwardingCommunicator : public Communicator {
 public:
  explicit ForwardingCommunicator(Communicator& inner) : inner_(inner) {}
  [[nodiscard]] Rank rank() const override { return inner_.rank(); }
  [[nodiscard]] WorldSize size() const override { return inner_.size(); }
  void barrier() override { inner_.barrier(); }
  void abort() noexcept override { inner_.abort(); }
  std::unique_ptr<Communicator> split(int color) override { return inner_.split(color); }
  std::shared_ptr<void> window(Bytes bytes) override { return inner_.window(bytes); }
  Ticket all_reduce(at::Tensor& t) override { return inner_.all_reduce(t); }
  Ticket reduce_scatter(const at::Tensor& full, at::Tensor& shard) override {
    return inner_.reduce_scatter(full, shard);
  }
  Ticket all_gather(const at::Tensor& shard, at::Tensor& full) override {
    return inner_.all_gather(shard, full);
  }
  Ticket broadcast(at::Tensor& t, Rank root) override { return inner_.broadcast(t, root); }
  Ticket send(const at::Tensor& t, Rank to) override { return inner_.send(t, to); }
  Ticket recv(at::Tensor& t, Rank from) override { return inner_.recv(t, from); }
  [[nodiscard]] std::int64_t dropped_tickets() const override { return inner_.dropped_tickets(); }

 private:
  Communicator& inner_;
};

}  // namespace sc
