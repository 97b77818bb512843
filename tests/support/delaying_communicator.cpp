#include "tests/support/delaying_communicator.h"

#include <atomic>
#include <utility>

#include "common/comm/completion.h"
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
    : ForwardingCommunicator(std::move(inner)),
      seed_(seed),
      longest_(longest),
      worker_(std::make_unique<DelayingWorker>(seed, longest, std::move(drops))) {}

DelayingCommunicator::~DelayingCommunicator() = default;

std::int64_t DelayingCommunicator::dropped_tickets() const { return worker_->drops()->count(); }

void DelayingCommunicator::barrier() {
  worker_->flush();
  inner().barrier();
}

std::shared_ptr<void> DelayingCommunicator::window(Bytes bytes, WindowUse use) {
  worker_->flush();
  return inner().window(bytes, use);
}

std::unique_ptr<Communicator> DelayingCommunicator::split(int color) {
  worker_->flush();
  std::unique_ptr<Communicator> part = inner().split(color);
  if (!part) return nullptr;
  return std::unique_ptr<Communicator>(new DelayingCommunicator(
      std::move(part), seed_ * 31 + 1, longest_, std::make_shared<DropCounter>(worker_->drops())));
}

// The operation works on copies of its input and output. An output that is a slice of the input, or the
// reverse, must stay a slice in the copies.
Ticket DelayingCommunicator::issue(const Operation& op, const at::Tensor& from, const at::Tensor& to,
                                   std::optional<Rank> peer) {
  SetApart apart;
  at::Tensor in, out;
  switch (op.kind) {
    case CommKind::all_reduce:
      in = out = apart.changed(to);
      break;
    case CommKind::reduce_scatter:
      in = apart.read(from);
      if (alias(from, to, rank())) {
        out = slice_of(in, to, rank());
        apart.lands(out, to);
      } else {
        out = apart.written(to);
      }
      break;
    case CommKind::all_gather:
      in = apart.read(from);
      if (alias(to, from, rank())) {
        out = apart.copied(to);
        for (std::int64_t r = 0; r < to_int(size()); ++r)
          if (r != to_int(rank())) poison(slice_of(to, from, Rank{static_cast<int>(r)}));
        apart.lands(out, to);
        in = slice_of(out, from, rank());
      } else {
        out = apart.written(to);
      }
      break;
    case CommKind::broadcast:
      in = out = peer == rank() ? apart.read(from) : apart.written(to);
      break;
    case CommKind::send:
      in = out = apart.read(from);
      break;
    default:
      in = out = apart.written(to);
  }
  return worker_->post(std::move(apart),
                       [this, op, in, out, peer] { return inner().issue(op, in, out, peer); });
}

std::unique_ptr<Communicator> delayed(std::unique_ptr<Communicator> comm) {
  static std::atomic<std::uint64_t> seed = 1;
  return std::make_unique<DelayingCommunicator>(std::move(comm), seed++);
}

}  // namespace sc
