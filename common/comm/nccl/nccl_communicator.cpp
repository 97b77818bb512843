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

namespace sc {
namespace {

using namespace std::chrono_literals;

/// A step's loss, tokens, squares and flag are four.
constexpr std::int64_t kSmallSum = 32;

struct FreeMemory {
  void operator()(float* memory) const noexcept { (void)cudaFree(memory); }
};

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return ncclFloat64;
    case DType::f32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f16:
      return ncclFloat16;
    case DType::i64:
      return ncclInt64;
    case DType::i32:
      return ncclInt32;
    case DType::u8:
      break;
  }
  return ncclUint8;
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

/// An operation on GPU tensors that is being put together, and its ticket.
class NcclCommunicator::Issue {
 public:
  Issue(NcclCommunicator& comm, const Operation& op, const at::Tensor& first, const at::Tensor& second)
      : comm_(comm),
        count_(static_cast<std::size_t>(op.elements.value())),
        type_(type_of(op.dtype)),
        first_(first),
        second_(second) {
    const std::string text = "rank " + std::to_string(to_int(comm.rank())) + ": " + describe(op);
    if (first.get_device() != comm.options_.device) {
      throw InputError(ExitCode::usage, text,
                       "the tensor is on " + first.device().str() + ", this rank's GPU is " +
                           std::to_string(comm.options_.device),
                       "");
    }
    if (comm.group_->aborted) throw AbortedError(text + ": the group was aborted");
    operation_ = std::make_shared<NcclOperation>(comm.group_, text);
  }

  /// `call` gets the communicator, the stream, the elements and their type; `behind` the stream, for what
  /// follows it there.
  template <class Call>
  Ticket collective(const Call& call, const std::function<void(cudaStream_t)>& behind = {}) {
    if (count_ == 0) return Ticket();
    const bool captured = mark_start();
    NcclEnd end = comm_.collectives_->issue(
        start_, [&](ncclComm_t nccl, cudaStream_t stream) { return call(nccl, stream, count_, type_); },
        behind);
    operation_->issued(comm_.collectives_, std::move(end), captured);
    return ticket();
  }
  Ticket by_copy(PeerSums& sums, const Operation& op) {
    const bool captured = mark_start();
    operation_->issued(nullptr, sums.issue(start_, op, first_, second_), captured);
    return ticket();
  }
  template <class Call>
  Ticket message(NcclPairs::Way way, Rank peer, const Call& call) {
    if (count_ == 0) return Ticket();
    const bool captured = mark_start();
    comm_.pairs_->post(way, peer,
                       {operation_, start_,
                        [call, count = count_, type = type_](ncclComm_t nccl, cudaStream_t stream) {
                          return call(nccl, stream, count, type);
                        },
                        first_},
                       captured);
    return ticket();
  }

 private:
  // The edge from the caller's stream to the channel's: without it NCCL would read what is not written yet.
  // True if the caller's stream captures a graph.
  bool mark_start() {
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(comm_.options_.device);
    start_ = comm_.group_->events->lease();
    SC_CHECK(cudaEventRecord(start_.get(), stream));
    return capturing(stream);
  }
  Ticket ticket() {
    return Ticket(std::make_unique<NcclTicket>(std::move(operation_), comm_.drops_, first_, second_));
  }

  NcclCommunicator& comm_;
  const std::size_t count_;
  const ncclDataType_t type_;
  const at::Tensor first_, second_;
  std::shared_ptr<NcclOperation> operation_;
  EventLease start_;
};

NcclCommunicator::NcclCommunicator(std::unique_ptr<Communicator> host, const NcclOptions& options,
                                   NcclGroup* parent, std::shared_ptr<DropCounter> drops)
    : host_(std::move(host)),
      options_(options),
      drops_(std::move(drops)),
      group_(std::make_shared<NcclGroup>()) {
  SC_CHECK(cudaSetDevice(options_.device));
  group_->device = options_.device;
  group_->rank = host_->rank();
  group_->world = host_->size();
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

// Given back where nothing runs any more that might never end: cudaFree waits for it.
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
  if (options_.messages_by_copy || options_.sums_by_copy) reach = peers_within_reach(*host_, options_.device);
  const auto world = static_cast<std::size_t>(to_int(size()));
  if (options_.sums_by_copy && world > 1 && world <= PeerSums::kMostRanks && all_within_reach(reach, world)) {
    sums_ = std::make_shared<PeerSums>(group_, *host_);
    group_->add(sums_);
  }
  if (!options_.messages_by_copy) reach.clear();
  pairs_ = std::make_unique<NcclPairs>(group_, *host_, [reach = std::move(reach), world](Rank from, Rank to) {
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
  host_->broadcast(bytes, Rank{0}, {OpPurpose::addresses}).wait();
  ncclUniqueId id;
  std::memcpy(&id, bytes.const_data_ptr(), sizeof id);
  collectives_->join(id, static_cast<int>(to_int(rank())), static_cast<int>(to_int(size())));
}

// NCCL connects the ranks in the first operation of a kind and waits for all of them there. They are all here
// now, so later operations wait for nobody while they are issued.
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

// The first gather between windows waits for all ranks, too, and the first two differ from later ones in how
// ranks tell each other that they are ready: a graph that is replayed must not be the second.
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

Rank NcclCommunicator::rank() const { return host_->rank(); }
WorldSize NcclCommunicator::size() const { return host_->size(); }
void NcclCommunicator::barrier() { host_->barrier(); }
std::int64_t NcclCommunicator::dropped_tickets() const { return drops_->count() + host_->dropped_tickets(); }

void NcclCommunicator::abort() noexcept {
  group_->abort();
  host_->abort();
}

std::unique_ptr<Communicator> NcclCommunicator::split(int color) {
  std::unique_ptr<Communicator> part = host_->split(color);
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

// In a pair's own communicator the sender is rank 0, the receiver rank 1.
Ticket NcclCommunicator::issue(const Operation& op, const at::Tensor& from, const at::Tensor& to,
                               std::optional<Rank> peer) {
  if (from.is_cpu()) return host_->issue(op, from, to, peer);
  const void* in = from.const_data_ptr();
  void* out = to.mutable_data_ptr();
  const std::size_t world = static_cast<std::size_t>(to_int(size()));
  Issue issue(*this, op, from, to);
  if (sums_ && sums_->can(op, from, to)) return issue.by_copy(*sums_, op);
  switch (op.kind) {
    case CommKind::all_reduce:
      if (gathered_ && op.dtype == DType::f64 && op.elements.value() <= kSmallSum) {
        return issue.collective(
            [&](ncclComm_t nccl, cudaStream_t stream, std::size_t n, auto type) {
              return ncclAllGather(in, gathered_.get(), n, type, nccl, stream);
            },
            [&](cudaStream_t stream) {
              add_rows_in_order(gathered_.get(), op.elements.value(), to_int(size()),
                                static_cast<double*>(out), stream);
            });
      }
      return issue.collective([&](ncclComm_t nccl, cudaStream_t stream, std::size_t n, auto type) {
        return ncclAllReduce(in, out, n, type, ncclSum, nccl, stream);
      });
    case CommKind::reduce_scatter:
      return issue.collective([&](ncclComm_t nccl, cudaStream_t stream, std::size_t n, auto type) {
        return ncclReduceScatter(in, out, n / world, type, ncclSum, nccl, stream);
      });
    case CommKind::all_gather:
      return issue.collective([&](ncclComm_t nccl, cudaStream_t stream, std::size_t n, auto type) {
        return ncclAllGather(in, out, n / world, type, nccl, stream);
      });
    case CommKind::broadcast:
      return issue.collective([&](ncclComm_t nccl, cudaStream_t stream, std::size_t n, auto type) {
        return ncclBroadcast(in, out, n, type, static_cast<int>(*peer), nccl, stream);
      });
    case CommKind::send:
      return issue.message(NcclPairs::Way::to, *peer,
                           [in](ncclComm_t nccl, cudaStream_t stream, std::size_t n, auto type) {
                             return ncclSend(in, n, type, 1, nccl, stream);
                           });
    default:
      return issue.message(NcclPairs::Way::from, *peer,
                           [out](ncclComm_t nccl, cudaStream_t stream, std::size_t n, auto type) {
                             return ncclRecv(out, n, type, 0, nccl, stream);
                           });
  }
}

std::function<bool()> ended_on_current_stream() {
  const int device = c10::cuda::current_device();
  const auto event = std::make_shared<CudaEvent>(make_event());
  SC_CHECK(cudaEventRecord(event->get(), c10::cuda::getCurrentCUDAStream()));
  return [device, event] { return event_passed(device, event->get()); };
}

}  // namespace sc
