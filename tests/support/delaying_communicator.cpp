#include "tests/support/delaying_communicator.h"

#include <utility>

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

at::Tensor slice_of(const at::Tensor& full, const at::Tensor& shard, Rank rank) {
  return full.view({-1}).narrow(0, to_int(rank) * shard.numel(), shard.numel()).view(shard.sizes());
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
  SetApart apart;
  at::Tensor sum = apart.changed(t);
  return worker_->post(std::move(apart), [this, sum]() mutable { return inner_->all_reduce(sum); });
}

Ticket DelayingCommunicator::reduce_scatter(const at::Tensor& full, at::Tensor& shard) {
  check_reduce_scatter({rank(), size()}, full, shard);
  SetApart apart;
  const at::Tensor all = apart.read(full);
  at::Tensor mine;
  if (alias(full, shard, rank())) {
    mine = slice_of(all, shard, rank());
    apart.lands(mine, shard);
  } else {
    mine = apart.written(shard);
  }
  return worker_->post(std::move(apart),
                       [this, all, mine]() mutable { return inner_->reduce_scatter(all, mine); });
}

Ticket DelayingCommunicator::all_gather(const at::Tensor& shard, at::Tensor& full) {
  check_all_gather({rank(), size()}, shard, full);
  SetApart apart;
  at::Tensor mine = apart.read(shard), all;
  if (alias(full, shard, rank())) {
    all = apart.copied(full);
    for (std::int64_t r = 0; r < to_int(size()); ++r)
      if (r != to_int(rank())) poison(slice_of(full, shard, Rank{static_cast<int>(r)}));
    apart.lands(all, full);
    mine = slice_of(all, shard, rank());
  } else {
    all = apart.written(full);
  }
  return worker_->post(std::move(apart),
                       [this, mine, all]() mutable { return inner_->all_gather(mine, all); });
}

Ticket DelayingCommunicator::broadcast(at::Tensor& t, Rank root) {
  check_broadcast({rank(), size()}, t, root);
  SetApart apart;
  at::Tensor copy = root == rank() ? apart.read(t) : apart.written(t);
  return worker_->post(std::move(apart),
                       [this, copy, root]() mutable { return inner_->broadcast(copy, root); });
}

Ticket DelayingCommunicator::send(const at::Tensor& t, Rank to) {
  check_send({rank(), size()}, t, to);
  SetApart apart;
  const at::Tensor copy = apart.read(t);
  return worker_->post(std::move(apart), [this, copy, to] { return inner_->send(copy, to); });
}

Ticket DelayingCommunicator::recv(at::Tensor& t, Rank from) {
  check_recv({rank(), size()}, t, from);
  SetApart apart;
  at::Tensor copy = apart.written(t);
  return worker_->post(std::move(apart), [this, copy, from]() mutable { return inner_->recv(copy, from); });
}

}  // namespace sc
