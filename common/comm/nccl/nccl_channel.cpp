#include "common/comm/nccl/nccl_channel.h"

#include <cstdio>
#include <thread>

#include "common/base/text.h"
#include "common/comm/communicator.h"
#include "common/comm/nccl/cuda_check.h"
#include "common/comm/nccl/nccl_devices.h"

namespace sc {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
constexpr auto kFinishLimit = 5s;
// The most multiprocessors, of an H200's 132, that an operation may take from a computation running at the
// same time. NCCL_MAX_CTAS in the environment overrides it.
constexpr int kMostBlocks = 16;
constexpr auto kSpin = 200us;  // a connected NCCL accepts in tens of us, which is less than a nap

/// Spaces out the polls of NCCL: for kSpin without a pause, later with naps.
class Patience {
 public:
  explicit Patience(Clock::duration limit) : limit_(limit) {}
  /// Waits before the next poll. False once the time limit has passed.
  bool wait() {
    const auto waited = Clock::now() - began_;
    if (waited > limit_) return false;
    waited < kSpin ? std::this_thread::yield() : std::this_thread::sleep_for(50us);
    return true;
  }

 private:
  const Clock::time_point began_ = Clock::now();
  const Clock::duration limit_;
};

}  // namespace

// Aborts all channels at the same time: each abort frees memory, which waits for every kernel on the GPU,
// including those of the other channels.
void NcclGroup::abort() noexcept {
  std::vector<std::shared_ptr<Abortable>> channels;
  begin_abort(channels);
  std::vector<std::jthread> threads;
  threads.reserve(channels.size());
  for (const auto& channel : channels) threads.emplace_back([&channel] { channel->abort(); });
}

void NcclGroup::begin_abort(std::vector<std::shared_ptr<Abortable>>& channels) {
  aborted = true;
  const std::lock_guard lock(mutex_);
  for (const auto& weak : parts_)
    if (const auto part = weak.lock()) part->begin_abort(channels);
  for (const auto& weak : channels_)
    if (auto channel = weak.lock()) channels.push_back(std::move(channel));
}

void NcclGroup::add(const std::weak_ptr<Abortable>& channel) {
  const std::lock_guard lock(mutex_);
  channels_.push_back(channel);
}

void NcclGroup::add(const std::shared_ptr<NcclGroup>& part) {
  const std::lock_guard lock(mutex_);
  parts_.push_back(part);
  if (aborted) part->aborted = true;
}

GpuMomentPtr NcclGroup::begin(cudaStream_t stream, const EventLease& start) {
  SC_CHECK(cudaStreamWaitEvent(stream, start.get(), 0));
  return traces() ? mark(stream, *moments) : nullptr;
}

// Marks the moment first: in a capture, all work on this stream must precede the event waited for.
NcclEnd NcclGroup::end(cudaStream_t stream, GpuMomentPtr began) {
  NcclEnd end{events->lease(), std::move(began), {}};
  if (traces()) end.ended = mark(stream, *moments);
  SC_CHECK(cudaEventRecord(end.event.get(), stream));
  return end;
}

NcclChannel::NcclChannel(std::shared_ptr<NcclGroup> group, std::string name)
    : group_(std::move(group)), name_(std::move(name)), stream_(make_priority_stream()) {}

NcclChannel::~NcclChannel() {
  (void)cudaSetDevice(group_->device);
  if (comm_ != nullptr) finish();
}

void NcclChannel::require(ncclResult_t result) {
  if (StatusTraits<ncclResult_t>::ok(result)) return;
  const char* detail = ncclGetLastError(nullptr);
  const std::string more = detail == nullptr || *detail == '\0' ? "" : std::string(" (") + detail + ")";
  throw DeviceError(name_ + ": NCCL: " + StatusTraits<ncclResult_t>::text(result) + more);
}

// Calls NCCL under the lock. Throws if the channel was aborted, because it has no communicator any more.
void NcclChannel::call_nccl(const std::function<ncclResult_t()>& call) {
  const std::lock_guard lock(mutex_);
  if (group_->aborted) throw AbortedError(name_ + ": the group was aborted");
  require(call());
}

void NcclChannel::begin_join(const ncclUniqueId& id, int rank, int ranks) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.maxCTAs = kMostBlocks;
  // With this policy NCCL leaves to copy engines whatever they can do between windows.
  if (nccl_may_use_copy_engines()) config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
  SC_CHECK(cudaSetDevice(group_->device));
  call_nccl([&] { return ncclCommInitRankConfig(&comm_, ranks, id, rank, &config); });
}

void NcclChannel::begin(const EventLease& start, const Call& call) {
  began_ = group_->begin(stream(), start);
  call_nccl([&] { return call(comm_, stream()); });
}

// NCCL's state, or nullopt while an aborting thread holds the communicator.
std::optional<ncclResult_t> NcclChannel::state() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (group_->aborted) throw AbortedError(name_ + ": the group was aborted");
  if (!lock) return std::nullopt;
  ncclResult_t state = ncclSuccess;
  require(ncclCommGetAsyncError(comm_, &state));
  return state;
}

bool NcclChannel::accepted() {
  const std::optional<ncclResult_t> now = state();
  if (!now || *now == ncclInProgress) return false;
  require(*now);
  return true;
}

void NcclChannel::until_accepted() {
  Patience patience(group_->limit);
  while (!accepted()) {
    if (patience.wait()) continue;
    throw DeviceError(
        name_ + ": NCCL has not answered for " +
        std::to_string(std::chrono::duration_cast<std::chrono::seconds>(group_->limit).count()) +
        " s: a rank is missing, or issued another operation");
  }
}

void NcclChannel::join(const ncclUniqueId& id, int rank, int ranks) {
  begin_join(id, rank, ranks);
  until_accepted();
}

NcclEnd NcclChannel::issue(const EventLease& start, const Call& call,
                           const std::function<void(cudaStream_t)>& behind) {
  begin(start, call);
  until_accepted();
  if (behind) behind(stream());
  return end();
}

// NCCL registers windows in a thread of its own. If registration fails or times out, that thread may still
// write the handle and use the memory, so both are leaked.
std::shared_ptr<void> NcclChannel::window(const std::shared_ptr<NcclChannel>& channel, Bytes bytes) {
  const auto size = static_cast<std::size_t>(bytes.value());
  void* memory = nullptr;
  SC_CHECK(cudaSetDevice(channel->group_->device));
  if (ncclMemAlloc(&memory, size) != ncclSuccess) {
    (void)cudaGetLastError();
    throw InputError(
        ExitCode::missing, "memory",
        "a window between GPUs asks for " + human_bytes(bytes) + ", which this GPU does not give",
        "a smaller batch.micro, activations=recompute, or a strategy that shards more");
  }
  auto handle = std::make_unique<ncclWindow_t>(nullptr);
  try {
    *channel->group_->windows = true;
    channel->call_nccl([&] {
      return ncclCommWindowRegister(channel->comm_, memory, size, handle.get(), NCCL_WIN_COLL_SYMMETRIC);
    });
    channel->until_accepted();
  } catch (...) {
    (void)handle.release();
    throw;
  }
  return {memory, [channel, window = *handle](void* of) { channel->close(window, of); }};
}

// Frees a window's memory when all streams are idle, because they may still read it. It is leaked if
// operations do not end, or if NCCL still works on another window.
void NcclChannel::close(ncclWindow_t window, void* memory) noexcept {
  (void)cudaSetDevice(group_->device);
  if (group_->aborted || stuck_) return;
  stuck_ = !idle_soon() || cudaDeviceSynchronize() != cudaSuccess;
  const std::lock_guard lock(mutex_);
  ncclResult_t now = ncclInternalError;
  if (stuck_ || comm_ == nullptr || ncclCommGetAsyncError(comm_, &now) != ncclSuccess || now != ncclSuccess)
    return;
  (void)ncclCommWindowDeregister(comm_, window);
  (void)ncclMemFree(memory);
}

void NcclChannel::check() {
  if (const auto now = state()) require(*now);
}

// abort() waits for the lock only briefly: its holder is in an NCCL call that returns at once.
void NcclChannel::abort() noexcept {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return;
  (void)cudaSetDevice(group_->device);
  ncclComm_t comm = std::exchange(comm_, nullptr);
  if (!*group_->windows) (void)ncclCommAbort(comm);
}

bool NcclChannel::idle_soon() const {
  Patience patience(kFinishLimit);
  cudaError_t status = cudaStreamQuery(stream());
  while (status == cudaErrorNotReady && patience.wait()) status = cudaStreamQuery(stream());
  if (status != cudaSuccess) (void)cudaGetLastError();
  return status == cudaSuccess;
}

void NcclChannel::finish() noexcept try {
  ncclResult_t now = ncclInternalError;
  if (!idle_soon() || ncclCommGetAsyncError(comm_, &now) != ncclSuccess || now != ncclSuccess) {
    if (!*group_->windows) (void)ncclCommAbort(comm_);
    return;
  }
  Patience patience(kFinishLimit);
  now = ncclCommFinalize(comm_);
  while (now == ncclInProgress && patience.wait()) {
    if (ncclCommGetAsyncError(comm_, &now) != ncclSuccess) return;
  }
  if (now == ncclInProgress) {
    // Even ncclCommAbort waits for captured graphs that hold NCCL's operations, and would wait here for ever.
    std::fprintf(
        stderr, "warning: %s: NCCL's memory is not given back: a captured graph still holds its operations\n",
        name_.c_str());
    return;
  }
  (void)ncclCommDestroy(comm_);
} catch (...) {
}

}  // namespace sc
