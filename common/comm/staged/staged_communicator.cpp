#include "common/comm/staged/staged_communicator.h"

#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <cstdio>

#include "common/comm/host_ticket.h"
#include "common/comm/nccl/cuda_check.h"
#include "common/comm/staged/staged_lane.h"

namespace sc {
namespace {

using Work = StagedLane::Work;
constexpr std::int64_t kPiece = StagedCommunicator::kPiece;

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

/// An operation on GPU tensors, piece by piece through a lane's memory.
struct Pieces {
  Communicator& inner;
  Operation op;
  Place from, to;
  std::int64_t n;  // elements
  std::optional<Rank> peer;

  void all_reduce(Work& work) const {
    in_pieces(n, kPiece / from.element, [&](std::int64_t begin, std::int64_t count) {
      at::Tensor host = work.piece(0, count, from.type);
      work.to_host(host.mutable_data_ptr(), from.at(begin), count * from.element);
      work.sync();
      work.wait(inner.all_reduce(host, op.what()));
      work.to_gpu(to.at(begin), host.const_data_ptr(), count * from.element);
      work.sync();
    });
  }
  // Part [begin, begin + count) of every slice goes rank-major into the piece: so a rank's part stays its
  // own.
  void reduce_scatter(Work& work) const {
    const std::int64_t world = to_int(inner.size()), slice = n / world;
    in_pieces(slice, part_of_slices(world, from.element), [&](std::int64_t begin, std::int64_t count) {
      const at::Tensor host = work.piece(0, count * world, from.type);
      at::Tensor sum = work.piece(kPiece, count, from.type);
      const std::int64_t bytes = count * from.element;
      char* parts = static_cast<char*>(host.mutable_data_ptr());
      for (std::int64_t r = 0; r < world; ++r)
        work.to_host(parts + r * bytes, from.at(r * slice + begin), bytes);
      work.sync();
      work.wait(inner.reduce_scatter(host, sum, op.what()));
      work.to_gpu(to.at(begin), sum.const_data_ptr(), bytes);
      work.sync();
    });
  }
  void all_gather(Work& work) const {
    const std::int64_t world = to_int(inner.size()), slice = n / world;
    in_pieces(slice, part_of_slices(world, from.element), [&](std::int64_t begin, std::int64_t count) {
      const at::Tensor own = work.piece(kPiece, count, from.type);
      at::Tensor host = work.piece(0, count * world, from.type);
      const std::int64_t bytes = count * from.element;
      work.to_host(own.mutable_data_ptr(), from.at(begin), bytes);
      work.sync();
      work.wait(inner.all_gather(own, host, op.what()));
      const char* parts = static_cast<const char*>(host.const_data_ptr());
      for (std::int64_t r = 0; r < world; ++r)
        work.to_gpu(to.at(r * slice + begin), parts + r * bytes, bytes);
      work.sync();
    });
  }
  void broadcast(Work& work) const {
    const bool root = inner.rank() == *peer;
    in_pieces(n, kPiece / from.element, [&](std::int64_t begin, std::int64_t count) {
      at::Tensor host = work.piece(0, count, from.type);
      const std::int64_t bytes = count * from.element;
      if (root) work.to_host(host.mutable_data_ptr(), from.at(begin), bytes);
      work.sync();
      work.wait(inner.broadcast(host, *peer, op.what()));
      if (!root) work.to_gpu(to.at(begin), host.const_data_ptr(), bytes);
      work.sync();
    });
  }
  void send(Work& work) const {
    in_pieces(n, kPiece / from.element, [&](std::int64_t begin, std::int64_t count) {
      const at::Tensor host = work.piece(0, count, from.type);
      work.to_host(host.mutable_data_ptr(), from.at(begin), count * from.element);
      work.sync();
      work.wait(inner.send(host, *peer, op.what()));
    });
  }
  void recv(Work& work) const {
    in_pieces(n, kPiece / to.element, [&](std::int64_t begin, std::int64_t count) {
      at::Tensor host = work.piece(0, count, to.type);
      work.wait(inner.recv(host, *peer, op.what()));
      work.to_gpu(to.at(begin), host.const_data_ptr(), count * to.element);
      work.sync();
    });
  }
};

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
Ticket StagedCommunicator::post(StagedLane& lane, const Operation& op, const at::Tensor& first,
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

Ticket StagedCommunicator::issue(const Operation& op, const at::Tensor& from, const at::Tensor& to,
                                 std::optional<Rank> peer) {
  const bool sends = op.kind == CommKind::send, message = sends || op.kind == CommKind::recv;
  StagedLane& lane = message ? messages(sends, *peer) : *collectives_;
  if (from.is_cpu()) {
    return post(lane, op, from, to,
                [this, op, from, to, peer](Work& work) { work.wait(inner_->issue(op, from, to, peer)); });
  }
  const Pieces pieces{*inner_, op, place_of(from), place_of(to), op.elements.value(), peer};
  switch (op.kind) {
    case CommKind::all_reduce:
      return post(lane, op, from, to, [pieces](Work& work) { pieces.all_reduce(work); });
    case CommKind::reduce_scatter:
      return post(lane, op, from, to, [pieces](Work& work) { pieces.reduce_scatter(work); });
    case CommKind::all_gather:
      return post(lane, op, from, to, [pieces](Work& work) { pieces.all_gather(work); });
    case CommKind::broadcast:
      return post(lane, op, from, to, [pieces](Work& work) { pieces.broadcast(work); });
    case CommKind::send:
      return post(lane, op, from, to, [pieces](Work& work) { pieces.send(work); });
    default:
      return post(lane, op, from, to, [pieces](Work& work) { pieces.recv(work); });
  }
}

}  // namespace sc
