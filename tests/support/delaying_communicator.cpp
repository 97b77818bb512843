#include "tests/support/delaying_communicator.h"

#include <cstring>

#include "common/comm/completion.h"
#include "common/comm/op_check.h"
#include "tests/support/delaying_worker.h"

namespace sc {
namespace {

bool alias(const at::Tensor& full, const at::Tensor& shard, Rank rank) {
  return shard.numel() > 0 && static_cast<const char*>(shard.const_data_ptr()) ==
                                  static_cast<const char*>(full.const_data_ptr()) +
                                      to_int(rank) * static_cast<std::int64_t>(shard.nbytes());
}

}  // namespace

DelayingCommunicator::DelayingCommunicator(std::unique_ptr<Communicator> inner, std::uint64_t seed,
                                           std::chrono::microseconds longest)
    : DelayingCommunicator(std::move(inner), seed, longest, std::make_shared<DropCounter>()) {}

DelayingCommunicator::DelayingCommunicator(std::unique_ptr<Communicator> inner, std::uint64_t seed,
                                           std::chrono::microseconds longest,
                                           std::shared_ptr<DropCounter> drops)
    : inner_(std::move(inner)),
      seed_(seed),
      longest_(longest),
      worker_(std::make_unique<DelayingWorker>(seed, longest, std::move(drops))) {}

DelayingCommunicator::~DelayingCommunicator() = default;

Rank DelayingCommunicator::rank() const { return inner_->rank(); }
WorldSize DelayingCommunicator::size() const { return inner_->size(); }
void DelayingCommunicator::abort() noexcept { inner_->abort(); }
std::int64_t DelayingCommunicator::dropped_tickets() const { return worker_->drops()->count(); }

void DelayingCommunicator::barrier() {
  worker_->flush();
  inner_->barrier();
}

std::shared_ptr<void> DelayingCommunicator::window(Bytes bytes) {
  worker_->flush();
  return inner_->window(bytes);
}

std::unique_ptr<Communicator> DelayingCommunicator::split(int color) {
  worker_->flush();
  std::unique_ptr<Communicator> part = inner_->split(color);
  if (!part) return nullptr;
  return std::unique_ptr<Communicator>(new DelayingCommunicator(
      std::move(part), seed_ * 31 + 1, longest_, std::make_shared<DropCounter>(worker_->drops())));
}

Ticket DelayingCommunicator::all_reduce(at::Tensor& t) {
  check_all_reduce({rank(), size()}, t);
  return worker_->post([this, t]() mutable { return inner_->all_reduce(t); });
}

Ticket DelayingCommunicator::reduce_scatter(const at::Tensor& full, at::Tensor& shard) {
  check_reduce_scatter({rank(), size()}, full, shard);
  if (!alias(full, shard, rank())) poison(shard);
  return worker_->post([this, full, shard]() mutable { return inner_->reduce_scatter(full, shard); });
}

Ticket DelayingCommunicator::all_gather(const at::Tensor& shard, at::Tensor& full) {
  check_all_gather({rank(), size()}, shard, full);
  auto* bytes = static_cast<char*>(full.mutable_data_ptr());
  for (std::int64_t r = 0; r < to_int(size()) && shard.numel() > 0; ++r) {
    if (r == to_int(rank()) && alias(full, shard, rank())) continue;
    std::memset(bytes + r * static_cast<std::int64_t>(shard.nbytes()), 0xff, shard.nbytes());
  }
  return worker_->post([this, shard, full]() mutable { return inner_->all_gather(shard, full); });
}

Ticket DelayingCommunicator::broadcast(at::Tensor& t, Rank root) {
  check_broadcast({rank(), size()}, t, root);
  if (root != rank()) poison(t);
  return worker_->post([this, t, root]() mutable { return inner_->broadcast(t, root); });
}

Ticket DelayingCommunicator::send(const at::Tensor& t, Rank to) {
  check_send({rank(), size()}, t, to);
  return worker_->post([this, t, to] { return inner_->send(t, to); });
}

Ticket DelayingCommunicator::recv(at::Tensor& t, Rank from) {
  check_recv({rank(), size()}, t, from);
  poison(t);
  return worker_->post([this, t, from]() mutable { return inner_->recv(t, from); });
}

}  // namespace sc
