#include "common/comm/staged/staged_communicator.h"

#include <ATen/ops/from_blob.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

#include "common/comm/host_ticket.h"
#include "common/comm/lane.h"
#include "common/comm/nccl/cuda_check.h"
#include "common/comm/nccl/nccl_events.h"
#include "common/comm/op_check.h"

namespace sc {

using namespace std::chrono_literals;

/// Runs operations one after another on a thread of its own, with their data passing through host memory.
class StagedLane {
 public:
  struct Operation {
    std::string text;
    EventLease start = {};                       // recorded after the caller's work; null for CPU tensors
    std::function<void(StagedLane&)> body = {};  // runs on the lane's thread; holds the tensors
    std::shared_ptr<Completion> end = std::make_shared<Completion>();
  };

  /// Uses the piece of `scratch` (u8, kept alive by its pieces) that begins at byte `begin`. A lane that
  /// `receives` does not wait at its end for messages still to come.
  StagedLane(int device, at::Tensor scratch, std::int64_t begin, bool receives)
      : device_(device), scratch_(std::move(scratch)), begin_(begin), receives_(receives) {}
  ~StagedLane() { stop_at_ = Clock::now() + (receives_ ? 0s : 5s); }

  void post(Operation operation) {
    lane_.post([this, operation = std::move(operation)]() mutable { execute(operation); });
  }

  // An operation's body calls the functions below, on the lane's thread.
  void copy(void* to, const void* from, std::int64_t bytes) {
    SC_CHECK(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, stream_.get()));
  }
  /// Waits until all copies of this lane have ended.
  void sync() { SC_CHECK(cudaStreamSynchronize(stream_.get())); }
  /// Waits like Ticket::wait(), but stops with AbortedError when the lane has to end.
  void wait(Ticket ticket) {
    while (!ticket.ready()) {
      if (Clock::now() >= stop_at_.load()) {
        (void)ticket.release();
        throw AbortedError("the communicator ended before the other rank came");
      }
      std::this_thread::sleep_for(50us);
    }
    ticket.wait();
  }
  /// The lane's host memory from byte `begin` on, as a tensor of that many elements.
  [[nodiscard]] at::Tensor piece(std::int64_t begin, std::int64_t elements, at::ScalarType type) const {
    char* data = static_cast<char*>(scratch_.mutable_data_ptr()) + begin_ + begin;
    // The tensor keeps the scratch alive: MPI writes into it until MPI ends, even for a receive given up.
    return at::from_blob(
        data, {elements}, [keep = scratch_](void*) {}, at::TensorOptions().dtype(type));
  }

 private:
  using Clock = std::chrono::steady_clock;
  void execute(Operation& operation) {
    (void)cudaSetDevice(device_);
    const std::shared_ptr<Completion> end = operation.end;
    std::optional<OpFailure> failure;
    try {
      if (operation.start) SC_CHECK(cudaStreamWaitEvent(stream_.get(), operation.start.get(), 0));
      operation.body(*this);
      sync();
    } catch (...) {
      failure = failure_from_current_exception();
      if (failure->where.empty()) failure->where = operation.text;
    }
    operation = {};  // releases its tensors before anybody returns from wait()
    end->finish(failure);
  }

  const int device_;
  const at::Tensor scratch_;
  const std::int64_t begin_;  // the byte at which this lane's part of it begins
  const bool receives_;
  const CudaStream stream_ = make_priority_stream();
  std::atomic<Clock::time_point> stop_at_ = Clock::time_point::max();
  Lane lane_;  // declared last, so that it ends first
};

namespace {

constexpr std::int64_t kPiece = StagedCommunicator::kPiece;

char* at_element(const at::Tensor& t, std::int64_t index) {
  return static_cast<char*>(t.mutable_data_ptr()) + index * static_cast<std::int64_t>(t.element_size());
}

// Runs an operation on GPU tensors through the lane's memory, piece by piece. If a tensor has one slice per
// rank, a piece holds a part of every slice, in rank order, so that each part reaches its own rank.
void run_in_pieces(StagedLane& lane, Communicator& inner, const Operation& op, const at::Tensor& from,
                   const at::Tensor& to, std::optional<Rank> peer) {
  const bool scatters = op.kind == CommKind::reduce_scatter, gathers = op.kind == CommKind::all_gather,
             spreads = op.kind == CommKind::broadcast, root = peer == inner.rank();
  const bool reads = spreads ? root : op.kind != CommKind::recv,
             writes = spreads ? !root : op.kind != CommKind::send;
  const std::int64_t ins = scatters ? to_int(inner.size()) : 1, outs = gathers ? to_int(inner.size()) : 1,
                     slices = ins * outs, slice = op.elements.value() / slices;
  const std::int64_t element = size_of(op.dtype), most = std::max<std::int64_t>(1, kPiece / slices / element);
  for (std::int64_t begin = 0; begin < slice; begin += most) {
    const std::int64_t count = std::min(most, slice - begin), bytes = count * element;
    const at::Tensor in = lane.piece(gathers ? kPiece : 0, count * ins, from.scalar_type());
    const at::Tensor out =
        scatters || gathers ? lane.piece(scatters ? kPiece : 0, count * outs, to.scalar_type()) : in;
    for (std::int64_t r = 0; reads && r < ins; ++r)
      lane.copy(at_element(in, r * count), at_element(from, r * slice + begin), bytes);
    if (reads) lane.sync();
    Operation piece = op;
    piece.elements = Elements(count * slices);
    lane.wait(inner.issue(piece, in, out, peer));
    for (std::int64_t r = 0; writes && r < outs; ++r)
      lane.copy(at_element(to, r * slice + begin), at_element(out, r * count), bytes);
    if (writes) lane.sync();
  }
}

// An event recorded after the work that the caller's stream has been given so far. Null without data.
EventLease callers_work(int device, const at::Tensor& tensor, const std::string& text) {
  check_on_gpu(text, device, tensor);
  if (tensor.numel() == 0) return nullptr;
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device));
  if (capturing(stream)) {
    throw DeviceError(text +
                      ": ranks that share a GPU cannot capture communication in a graph (--graph off)");
  }
  EventLease start(make_event().release(), DestroyEvent());
  SC_CHECK(cudaEventRecord(start.get(), stream));
  return start;
}

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

StagedCommunicator::StagedCommunicator(std::unique_ptr<Communicator> of_host, int device,
                                       const ScratchAllocator& pinned, std::shared_ptr<DropCounter> drops)
    : ForwardingCommunicator(std::move(of_host)),
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

std::string StagedCommunicator::text_of(const std::string& what) const {
  return "rank " + std::to_string(to_int(rank())) + ": " + what;
}

// Runs `work` on the collectives' lane and waits for it, so that all ranks issue them in one order.
void StagedCommunicator::run_on_lane(const char* what, const std::function<void()>& work) {
  StagedLane::Operation operation{text_of(what), {}, [&](StagedLane&) { work(); }};
  const std::shared_ptr<Completion> end = operation.end;
  collectives_->post(std::move(operation));
  end->wait();
}

void StagedCommunicator::barrier() {
  run_on_lane("barrier", [this] { inner().barrier(); });
}

std::unique_ptr<Communicator> StagedCommunicator::split(int color) {
  std::unique_ptr<Communicator> part;
  run_on_lane("split", [&] { part = inner().split(color); });
  if (!part) return nullptr;
  return std::unique_ptr<Communicator>(
      new StagedCommunicator(std::move(part), device_, pinned_, std::make_shared<DropCounter>(drops_)));
}

std::int64_t StagedCommunicator::dropped_tickets() const { return drops_->count(); }

// The lane for messages to or from a peer, made by its first message. Pieces 0 and 1 of the scratch belong to
// collectives, piece 2 + 2 peer + direction to a lane, without a gap for this rank itself.
StagedLane& StagedCommunicator::messages(bool to, Rank peer) {
  std::unique_ptr<StagedLane>& lane = messages_[{to, peer}];
  if (!lane) {
    const std::int64_t place = to_int(peer) - (peer > rank() ? 1 : 0);
    lane = std::make_unique<StagedLane>(device_, scratch_, (2 + 2 * place + (to ? 1 : 0)) * kPiece, !to);
  }
  return *lane;
}

Ticket StagedCommunicator::issue(const Operation& op, const at::Tensor& from, const at::Tensor& to,
                                 std::optional<Rank> peer) {
  const bool sends = op.kind == CommKind::send, message = sends || op.kind == CommKind::recv;
  StagedLane& lane = message ? messages(sends, *peer) : *collectives_;
  StagedLane::Operation operation{text_of(describe(op))};
  HostTicket of_host(operation.end, drops_, from, to);
  std::unique_ptr<TicketState> ticket;
  if (from.is_cpu()) {
    operation.body = [this, op, from, to, peer](StagedLane& on) {
      on.wait(inner().issue(op, from, to, peer));
    };
    ticket = std::make_unique<HostTicket>(std::move(of_host));
  } else {
    operation.start = callers_work(device_, from, operation.text);
    if (!operation.start) return Ticket();
    operation.body = [this, op, from, to, peer](StagedLane& on) {
      run_in_pieces(on, inner(), op, from, to, peer);
    };
    ticket = std::make_unique<StagedTicket>(std::move(of_host), device_, moments_);
  }
  lane.post(std::move(operation));
  return Ticket(std::move(ticket));
}

}  // namespace sc
