#include "common/comm/nccl/nccl_communicator.h"

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <cstring>
#include <thread>

#include "common/comm/nccl/cuda_check.h"
#include "common/comm/nccl/nccl_channel.h"
#include "common/comm/nccl/nccl_devices.h"
#include "common/comm/nccl/nccl_pairs.h"
#include "common/comm/nccl/nccl_ticket.h"
#include "common/comm/nccl/peer_channel.h"
#include "common/comm/nccl/peer_sums.h"
#include "common/comm/nccl/rank_sum_kernel.h"
#include "common/comm/op_check.h"

namespace sc {
namespace {

using namespace std::chrono_literals;

/// The most numbers that are gathered to be summed in rank order; a step has four.
constexpr std::int64_t kSmallSum = 32;

struct FreeMemory {
  void operator()(float* memory) const noexcept { (void)cudaFree(memory); }
};

ncclDataType_t type_of(DType dtype) {
  constexpr ncclDataType_t kTypes[] = {ncclFloat64, ncclFloat32, ncclBfloat16, ncclFloat16,
                                       ncclInt64,   ncclInt32,   ncclUint8};
  return kTypes[static_cast<int>(dtype)];
}

// The NCCL call for an operation. In a pair's communicator the sender is rank 0, the receiver rank 1.
NcclChannel::Call call_of(const Operation& op, const void* in, void* out, std::optional<Rank> root) {
  const auto n = static_cast<std::size_t>(op.elements.value()),
             slice = n / static_cast<std::size_t>(to_int(op.ranks));
  const ncclDataType_t type = type_of(op.dtype);
  return [=, kind = op.kind](ncclComm_t nccl, cudaStream_t stream) {
    switch (kind) {
      case CommKind::all_reduce:
        return ncclAllReduce(in, out, n, type, ncclSum, nccl, stream);
      case CommKind::reduce_scatter:
        return ncclReduceScatter(in, out, slice, type, ncclSum, nccl, stream);
      case CommKind::all_gather:
        return ncclAllGather(in, out, slice, type, nccl, stream);
      case CommKind::broadcast:
        return ncclBroadcast(in, out, n, type, static_cast<int>(*root), nccl, stream);
      case CommKind::send:
        return ncclSend(in, n, type, 1, nccl, stream);
      default:
        return ncclRecv(out, n, type, 0, nccl, stream);
    }
  };
}

bool all_within_reach(const std::vector<bool>& reach, std::size_t world) {
  for (std::size_t i = 0; i < world * world; ++i)
    if (i / world != i % world && !reach[i]) return false;
  return true;
}

void check_version() {
  int loaded = 0;
  SC_CHECK(ncclGetVersion(&loaded));
  if (loaded >= NCCL_VERSION_CODE) return;
  throw InputError(ExitCode::missing, "NCCL",
                   describe_nccl() + ": the loaded library is older than the header",
                   "leave the older one off LD_LIBRARY_PATH; see common/setup/doctor.sh");
}

}  // namespace

NcclCommunicator::NcclCommunicator(std::unique_ptr<Communicator> host, const NcclOptions& options,
                                   NcclGroup* parent, std::shared_ptr<DropCounter> drops)
    : ForwardingCommunicator(std::move(host)),
      options_(options),
      drops_(std::move(drops)),
      group_(std::make_shared<NcclGroup>()) {
  SC_CHECK(cudaSetDevice(options_.device));
  group_->device = options_.device;
  group_->rank = inner().rank();
  group_->world = inner().size();
  group_->limit = options_.limit;
  group_->trace = options_.trace;
  if (parent != nullptr) {
    group_->windows = parent->windows;
    parent->add(group_);
  }
  collectives_ = std::make_shared<NcclChannel>(
      group_, "rank " + std::to_string(to_int(rank())) + " of " + std::to_string(to_int(size())));
  group_->add(collectives_);
  make_peers();
  connect();
  warm_up();
  if (to_int(size()) > 2) make_gathered();
}

NcclCommunicator::~NcclCommunicator() = default;

// Allocates gathered_.It is freed only if no GPU work might run for ever: cudaFree waits for all.
void NcclCommunicator::make_gathered() {
  double* memory = nullptr;
  SC_CHECK(cudaMalloc(&memory, static_cast<std::size_t>(to_int(size()) * kSmallSum) * sizeof(double)));
  gathered_ = {memory, [group = group_, channel = collectives_](double* of) {
                 (void)cudaSetDevice(group->device);
                 if (!group->aborted && idle_within(channel->stream(), 5s)) (void)cudaFree(of);
               }};
}

void NcclCommunicator::make_peers() {
  std::vector<bool> reach;
  if (options_.messages_by_copy || options_.sums_by_copy)
    reach = peers_within_reach(inner(), options_.device);
  const auto world = static_cast<std::size_t>(to_int(size()));
  if (options_.sums_by_copy && world > 1 && world <= PeerSums::kMostRanks && all_within_reach(reach, world)) {
    sums_ = std::make_shared<PeerSums>(group_, inner());
    group_->add(sums_);
  }
  if (!options_.messages_by_copy) reach.clear();
  pairs_ =
      std::make_unique<NcclPairs>(group_, inner(), [reach = std::move(reach), world](Rank from, Rank to) {
        return !reach.empty() &&
               reach[static_cast<std::size_t>(to_int(to)) * world + static_cast<std::size_t>(to_int(from))];
      });
}

std::unique_ptr<Communicator> NcclCommunicator::make(std::unique_ptr<Communicator> host,
                                                     const NcclOptions& options) {
  set_nccl_environment();
  check_version();
  return std::unique_ptr<Communicator>(
      new NcclCommunicator(std::move(host), options, nullptr, std::make_shared<DropCounter>()));
}

void NcclCommunicator::connect() {
  at::Tensor bytes = at::empty({NCCL_UNIQUE_ID_BYTES}, at::kByte);
  if (rank() == Rank{0}) SC_CHECK(ncclGetUniqueId(static_cast<ncclUniqueId*>(bytes.mutable_data_ptr())));
  inner().broadcast(bytes, Rank{0}, {OpPurpose::addresses}).wait();
  ncclUniqueId id;
  std::memcpy(&id, bytes.const_data_ptr(), sizeof id);
  collectives_->join(id, static_cast<int>(to_int(rank())), static_cast<int>(to_int(size())));
}

// Runs every kind of operation once: NCCL connects the ranks in the first of each kind and waits there for
// all of them. All are here now, so later operations wait for no rank while they are issued.
void NcclCommunicator::warm_up() {
  const auto world = static_cast<std::size_t>(to_int(size())), me = static_cast<std::size_t>(to_int(rank()));
  float* memory = nullptr;
  SC_CHECK(cudaMalloc(&memory, world * sizeof(float)));
  const UniqueHandle<float*, FreeMemory> owner(memory);
  NcclEnd end{group_->events->lease(), {}, {}};
  SC_CHECK(cudaMemsetAsync(memory, 0, world * sizeof(float), collectives_->stream()));
  SC_CHECK(cudaEventRecord(end.event.get(), collectives_->stream()));
  end = collectives_->issue(end.event, [&](ncclComm_t nccl, cudaStream_t stream) {
    return ncclReduceScatter(memory, memory + me, 1, ncclFloat32, ncclSum, nccl, stream);
  });
  end = collectives_->issue(end.event, [&](ncclComm_t nccl, cudaStream_t stream) {
    return ncclAllGather(memory + me, memory, 1, ncclFloat32, nccl, stream);
  });
  end = collectives_->issue(end.event, [&](ncclComm_t nccl, cudaStream_t stream) {
    return ncclAllReduce(memory, memory, world, ncclFloat32, ncclSum, nccl, stream);
  });
  wait_for(end);
}

// Runs two gathers between windows. NCCL waits for all ranks in the first, and ranks signal readiness
// differently in the first two, so a replayed graph must hold neither.
void NcclCommunicator::warm_up_copies(char* window) {
  NcclEnd end{group_->events->lease(), {}, {}};
  SC_CHECK(cudaEventRecord(end.event.get(), collectives_->stream()));
  for (int k = 0; k < 2; ++k) {
    end = collectives_->issue(end.event, [&](ncclComm_t nccl, cudaStream_t stream) {
      return ncclAllGather(window + to_int(rank()), window, 1, ncclUint8, nccl, stream);
    });
  }
  wait_for(end);
}

void NcclCommunicator::wait_for(const NcclEnd& end) {
  const auto limit = std::chrono::steady_clock::now() + options_.limit;
  while (!event_passed(options_.device, end.event.get())) {
    collectives_->check();
    if (std::chrono::steady_clock::now() > limit) {
      (void)collectives_->abort();
      throw DeviceError("rank " + std::to_string(to_int(rank())) + ": NCCL's first operations do not end");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::int64_t NcclCommunicator::dropped_tickets() const { return drops_->count() + inner().dropped_tickets(); }

void NcclCommunicator::abort() noexcept {
  group_->abort();
  inner().abort();
}

std::unique_ptr<Communicator> NcclCommunicator::split(int color) {
  std::unique_ptr<Communicator> part = inner().split(color);
  if (!part) return nullptr;
  return std::unique_ptr<Communicator>(
      new NcclCommunicator(std::move(part), options_, group_.get(), std::make_shared<DropCounter>(drops_)));
}

std::shared_ptr<void> NcclCommunicator::window(Bytes bytes, WindowUse use) {
  if (to_int(size()) == 1 || bytes.value() < to_int(size())) return nullptr;
  if (use == WindowUse::sums) return sums_ ? sums_->window(bytes) : nullptr;
  std::shared_ptr<void> memory = NcclChannel::window(collectives_, bytes);
  if (!std::exchange(has_windows_, true)) warm_up_copies(static_cast<char*>(memory.get()));
  return memory;
}

NcclEnd NcclCommunicator::on_nccl(const EventLease& start, const Operation& op, const at::Tensor& from,
                                  const at::Tensor& to, std::optional<Rank> root) {
  const void* in = from.const_data_ptr();
  void* out = to.mutable_data_ptr();
  const bool small = op.dtype == DType::f64 && op.elements.value() <= kSmallSum;
  if (op.kind != CommKind::all_reduce || !gathered_ || !small)
    return collectives_->issue(start, call_of(op, in, out, root));
  Operation gather = op;
  gather.kind = CommKind::all_gather;
  gather.elements = op.elements * to_int(size());
  return collectives_->issue(start, call_of(gather, in, gathered_.get(), {}), [&](cudaStream_t stream) {
    add_rows_in_order(gathered_.get(), op.elements.value(), to_int(size()), static_cast<double*>(out),
                      stream);
  });
}

Ticket NcclCommunicator::issue(const Operation& op, const at::Tensor& from, const at::Tensor& to,
                               std::optional<Rank> peer) {
  if (from.is_cpu()) return inner().issue(op, from, to, peer);
  const std::string text = "rank " + std::to_string(to_int(rank())) + ": " + describe(op);
  check_on_gpu(text, options_.device, from);
  if (group_->aborted) throw AbortedError(text + ": the group was aborted");
  if (op.elements.value() == 0) return Ticket();
  // The event is the edge from the caller's stream to the operation's stream: without it NCCL would read data
  // before they are written.
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(options_.device);
  const EventLease start = group_->events->lease();
  SC_CHECK(cudaEventRecord(start.get(), stream));
  const bool captured = capturing(stream), sends = op.kind == CommKind::send;
  const auto operation = std::make_shared<NcclOperation>(group_, text);
  if (sums_ && sums_->can(op, from, to)) {
    operation->issued(nullptr, sums_->issue(start, op, from, to), captured);
  } else if (sends || op.kind == CommKind::recv) {
    const NcclChannel::Call call = call_of(op, from.const_data_ptr(), to.mutable_data_ptr(), {});
    pairs_->post(sends ? NcclPairs::Way::to : NcclPairs::Way::from, *peer, {operation, start, call, from},
                 captured);
  } else {
    operation->issued(collectives_, on_nccl(start, op, from, to, peer), captured);
  }
  return Ticket(std::make_unique<NcclTicket>(operation, drops_, from, to));
}

std::function<bool()> ended_on_current_stream() {
  const int device = c10::cuda::current_device();
  const auto event = std::make_shared<CudaEvent>(make_event());
  SC_CHECK(cudaEventRecord(event->get(), c10::cuda::getCurrentCUDAStream()));
  return [device, event] { return event_passed(device, event->get()); };
}

}  // namespace sc
