#include "common/comm/staged/staged_communicator.h"

#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <cstdio>

#include "common/comm/host_ticket.h"
#include "common/comm/nccl/cuda_check.h"
#include "common/comm/op_check.h"
#include "common/comm/staged/staged_lane.h"

namespace sc {
namespace {

using Work = StagedLane::Work;

/// A tensor's elements where they lie, as bytes.
struct Place {
  char* data;
  std::int64_t element;  // bytes
  at::ScalarType type;
  [[nodiscard]] char* at(std::int64_t index) const { return data + index * element; }
};

Place place_of(const at::Tensor& t) {
  return {static_cast<char*>(const_cast<void*>(t.const_data_ptr())),
          static_cast<std::int64_t>(t.element_size()), t.scalar_type()};
}

/// Calls f(begin, count) for [0, n) in pieces of at most `most` elements.
template <class F>
void in_pieces(std::int64_t n, std::int64_t most, const F& f) {
  for (std::int64_t begin = 0; begin < n; begin += most) f(begin, std::min(most, n - begin));
}

/// Elements of a full tensor's slices that fit into a piece, one part of each slice.
std::int64_t part_of_slices(std::int64_t world, std::int64_t element) {
  return std::max<std::int64_t>(1, StagedCommunicator::kPiece / world / element);
}

/// Of GPU tensors.
class StagedTicket final : public HostTicket {
 public:
  StagedTicket(HostTicket ticket, int device, std::shared_ptr<EventPool> moments)
      : HostTicket(std::move(ticket)),
        device_(static_cast<c10::DeviceIndex>(device)),
        moments_(std::move(moments)) {}
  void wait() override {
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device_);
    times_.wait_began = mark(stream, *moments_);
    HostTicket::wait();
    times_.wait_ended = mark(stream, *moments_);
  }
  GpuTimes gpu_times() override { return times_; }

 private:
  const c10::DeviceIndex device_;
  std::shared_ptr<EventPool> moments_;
  GpuTimes times_;
};

}  // namespace

StagedCommunicator::StagedCommunicator(std::unique_ptr<Communicator> inner, int device,
                                       const ScratchAllocator& pinned, std::shared_ptr<DropCounter> drops)
    : inner_(std::move(inner)),
      device_(device),
      pinned_(pinned),
      drops_(std::move(drops)),
      moments_(std::make_shared<EventPool>(EventPool::Kind::timed)) {
  SC_CHECK(cudaSetDevice(device_));
  scratch_ = pinned_(staged_scratch_bytes(size()));
  collectives_ = std::make_unique<StagedLane>(device_, scratch_, 0, false);
}

StagedCommunicator::~StagedCommunicator() = default;

std::unique_ptr<Communicator> StagedCommunicator::make(std::unique_ptr<Communicator> inner, int device,
                                                       const ScratchAllocator& pinned) {
  if (inner->rank() == Rank{0}) {
    std::fprintf(stderr,
                 "note: ranks share a GPU, so their tensors travel through host memory: right, but slow\n");
  }
  return std::unique_ptr<Communicator>(
      new StagedCommunicator(std::move(inner), device, pinned, std::make_shared<DropCounter>()));
}

// What is collective on `inner` takes the lane of the collectives, so that all ranks issue it in one order.
void StagedCommunicator::run_on_lane(const char* what, const std::function<void()>& work) {
  StagedLane::Operation operation{
      "rank " + std::to_string(to_int(rank())) + ": " + what, {}, [&](Work&) { work(); }, {}, {}};
  const std::shared_ptr<Completion> end = operation.end;
  collectives_->post(std::move(operation));
  end->wait();
}

void StagedCommunicator::barrier() {
  run_on_lane("barrier", [this] { inner_->barrier(); });
}

std::unique_ptr<Communicator> StagedCommunicator::split(int color) {
  std::unique_ptr<Communicator> part;
  run_on_lane("split", [&] { part = inner_->split(color); });
  if (!part) return nullptr;
  return std::unique_ptr<Communicator>(
      new StagedCommunicator(std::move(part), device_, pinned_, std::make_shared<DropCounter>(drops_)));
}

std::int64_t StagedCommunicator::dropped_tickets() const { return drops_->count(); }

// Pieces 0 and 1 are the collectives'; a pair's is 2 + 2 peer + direction, without a gap for this rank
// itself.
StagedLane& StagedCommunicator::messages(bool to, Rank peer) {
  std::unique_ptr<StagedLane>& lane = messages_[{to, peer}];
  if (!lane) {
    const std::int64_t place = to_int(peer) - (peer > rank() ? 1 : 0);
    lane = std::make_unique<StagedLane>(device_, scratch_, (2 + 2 * place + (to ? 1 : 0)) * kPiece, !to);
  }
  return *lane;
}

template <class Body>
Ticket StagedCommunicator::post(StagedLane& lane, const CommOp& op, const at::Tensor& first,
                                const at::Tensor& second, Body&& body) {
  const std::string text = "rank " + std::to_string(to_int(rank())) + ": " + describe(op);
  EventLease start;
  if (first.is_cuda()) {
    if (first.get_device() != device_) {
      throw InputError(
          ExitCode::usage, text,
          "the tensor is on " + first.device().str() + ", this rank's GPU is " + std::to_string(device_), "");
    }
    if (op.elements.value() == 0) return Ticket();
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device_);
    if (capturing(stream)) {
      throw DeviceError(text +
                        ": ranks that share a GPU cannot capture communication in a graph (--graph off)");
    }
    start = EventLease(make_event().release(), DestroyEvent());
    SC_CHECK(cudaEventRecord(start.get(), stream));
  }
  StagedLane::Operation operation{text, std::move(start), std::forward<Body>(body), first, second};
  HostTicket of_host(operation.end, drops_, first, second);
  std::unique_ptr<TicketState> ticket;
  if (first.is_cuda()) {
    ticket = std::make_unique<StagedTicket>(std::move(of_host), device_, moments_);
  } else {
    ticket = std::make_unique<HostTicket>(std::move(of_host));
  }
  lane.post(std::move(operation));
  return Ticket(std::move(ticket));
}

Ticket StagedCommunicator::all_reduce(at::Tensor& t) {
  const CommOp op = check_all_reduce({rank(), size()}, t);
  if (t.is_cpu()) {
    return post(*collectives_, op, t, {},
                [this, t](Work& work) mutable { work.wait(inner_->all_reduce(t)); });
  }
  return post(*collectives_, op, t, {}, [this, gpu = place_of(t), n = t.numel()](Work& work) {
    in_pieces(n, kPiece / gpu.element, [&](std::int64_t begin, std::int64_t count) {
      at::Tensor host = work.piece(0, count, gpu.type);
      work.to_host(host.mutable_data_ptr(), gpu.at(begin), count * gpu.element);
      work.sync();
      work.wait(inner_->all_reduce(host));
      work.to_gpu(gpu.at(begin), host.const_data_ptr(), count * gpu.element);
      work.sync();
    });
  });
}

// Part [begin, begin + count) of every slice goes rank-major into the piece: so a rank's part stays its own.
Ticket StagedCommunicator::reduce_scatter(const at::Tensor& full, at::Tensor& shard) {
  const CommOp op = check_reduce_scatter({rank(), size()}, full, shard);
  if (full.is_cpu()) {
    return post(*collectives_, op, full, shard,
                [this, full, shard](Work& work) mutable { work.wait(inner_->reduce_scatter(full, shard)); });
  }
  const auto body = [this, from = place_of(full), to = place_of(shard), n = shard.numel()](Work& work) {
    const std::int64_t world = to_int(size());
    in_pieces(n, part_of_slices(world, from.element), [&](std::int64_t begin, std::int64_t count) {
      const at::Tensor host = work.piece(0, count * world, from.type);
      at::Tensor sum = work.piece(kPiece, count, from.type);
      const std::int64_t bytes = count * from.element;
      char* parts = static_cast<char*>(host.mutable_data_ptr());
      for (std::int64_t r = 0; r < world; ++r) work.to_host(parts + r * bytes, from.at(r * n + begin), bytes);
      work.sync();
      work.wait(inner_->reduce_scatter(host, sum));
      work.to_gpu(to.at(begin), sum.const_data_ptr(), bytes);
      work.sync();
    });
  };
  return post(*collectives_, op, full, shard, body);
}

Ticket StagedCommunicator::all_gather(const at::Tensor& shard, at::Tensor& full) {
  const CommOp op = check_all_gather({rank(), size()}, shard, full);
  if (full.is_cpu()) {
    return post(*collectives_, op, full, shard,
                [this, full, shard](Work& work) mutable { work.wait(inner_->all_gather(shard, full)); });
  }
  const auto body = [this, from = place_of(shard), to = place_of(full), n = shard.numel()](Work& work) {
    const std::int64_t world = to_int(size());
    in_pieces(n, part_of_slices(world, from.element), [&](std::int64_t begin, std::int64_t count) {
      const at::Tensor own = work.piece(kPiece, count, from.type);
      at::Tensor host = work.piece(0, count * world, from.type);
      const std::int64_t bytes = count * from.element;
      work.to_host(own.mutable_data_ptr(), from.at(begin), bytes);
      work.sync();
      work.wait(inner_->all_gather(own, host));
      const char* parts = static_cast<const char*>(host.const_data_ptr());
      for (std::int64_t r = 0; r < world; ++r) work.to_gpu(to.at(r * n + begin), parts + r * bytes, bytes);
      work.sync();
    });
  };
  return post(*collectives_, op, full, shard, body);
}

Ticket StagedCommunicator::broadcast(at::Tensor& t, Rank root) {
  const CommOp op = check_broadcast({rank(), size()}, t, root);
  if (t.is_cpu()) {
    return post(*collectives_, op, t, {},
                [this, t, root](Work& work) mutable { work.wait(inner_->broadcast(t, root)); });
  }
  return post(*collectives_, op, t, {}, [this, gpu = place_of(t), n = t.numel(), root](Work& work) {
    in_pieces(n, kPiece / gpu.element, [&](std::int64_t begin, std::int64_t count) {
      at::Tensor host = work.piece(0, count, gpu.type);
      const std::int64_t bytes = count * gpu.element;
      if (rank() == root) work.to_host(host.mutable_data_ptr(), gpu.at(begin), bytes);
      work.sync();
      work.wait(inner_->broadcast(host, root));
      if (rank() != root) work.to_gpu(gpu.at(begin), host.const_data_ptr(), bytes);
      work.sync();
    });
  });
}

Ticket StagedCommunicator::send(const at::Tensor& t, Rank to) {
  const CommOp op = check_send({rank(), size()}, t, to);
  if (t.is_cpu()) {
    return post(messages(true, to), op, t, {}, [this, t, to](Work& work) { work.wait(inner_->send(t, to)); });
  }
  return post(messages(true, to), op, t, {}, [this, gpu = place_of(t), n = t.numel(), to](Work& work) {
    in_pieces(n, kPiece / gpu.element, [&](std::int64_t begin, std::int64_t count) {
      const at::Tensor host = work.piece(0, count, gpu.type);
      work.to_host(host.mutable_data_ptr(), gpu.at(begin), count * gpu.element);
      work.sync();
      work.wait(inner_->send(host, to));
    });
  });
}

Ticket StagedCommunicator::recv(at::Tensor& t, Rank from) {
  const CommOp op = check_recv({rank(), size()}, t, from);
  if (t.is_cpu()) {
    return post(messages(false, from), op, t, {},
                [this, t, from](Work& work) mutable { work.wait(inner_->recv(t, from)); });
  }
  return post(messages(false, from), op, t, {}, [this, gpu = place_of(t), n = t.numel(), from](Work& work) {
    in_pieces(n, kPiece / gpu.element, [&](std::int64_t begin, std::int64_t count) {
      at::Tensor host = work.piece(0, count, gpu.type);
      work.wait(inner_->recv(host, from));
      work.to_gpu(gpu.at(begin), host.const_data_ptr(), count * gpu.element);
      work.sync();
    });
  });
}

}  // namespace sc
