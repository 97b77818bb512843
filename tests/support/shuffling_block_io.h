// A slow disk that answers requests in another order than it received them. No torch.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "common/storage/block_io.h"

namespace sc {

/// Holds all requests and performs one at a time: the newest, any, or one kind only when there is no other. A
/// read's target holds 0xff bytes (NaN) from the request on, and a write takes the bytes that are in memory
/// at its turn, so that a use of memory before its request has ended shows.
class ShufflingBlockIo final : public BlockIo {
 public:
  enum class Order : std::uint8_t { newest_first, any, reads_last, writes_last };
  ShufflingBlockIo(std::unique_ptr<BlockIo> inner, Order order, std::uint64_t seed)
      : inner_(std::move(inner)), order_(order), random_(seed) {}
  void submit(const BlockRequest& request) override {
    if (request.kind == BlockRequest::Kind::read)
      std::memset(request.bytes.data(), 0xff, request.bytes.size());
    held_.push_back(request);
  }
  BlockResult reap() override {
    std::this_thread::sleep_for(std::chrono::microseconds(up_to(300)));  // others come meanwhile
    std::swap(held_[next()], held_.back());
    inner_->submit(held_.back());
    held_.pop_back();
    return inner_->reap();
  }

 private:
  std::size_t next() {
    const std::size_t last = held_.size() - 1;
    if (order_ == Order::newest_first) return last;
    if (order_ == Order::any) return up_to(last);
    const auto late = order_ == Order::reads_last ? BlockRequest::Kind::read : BlockRequest::Kind::write;
    const auto first = std::ranges::find_if(held_, [&](const auto& request) { return request.kind != late; });
    return first == held_.end() ? 0 : static_cast<std::size_t>(first - held_.begin());
  }
  std::size_t up_to(std::size_t most) { return std::uniform_int_distribution<std::size_t>(0, most)(random_); }

  const std::unique_ptr<BlockIo> inner_;
  const Order order_;
  std::mt19937_64 random_;
  std::vector<BlockRequest> held_;
};

}  // namespace sc
