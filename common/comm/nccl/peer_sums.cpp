#include "common/comm/nccl/peer_sums.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "common/base/check.h"
#include "common/base/text.h"
#include "common/comm/gather_text.h"
#include "common/comm/nccl/cuda_check.h"
#include "common/comm/nccl/rank_sum_kernel.h"

namespace sc {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kDone = 0, kOpen = 1;
constexpr std::int64_t kLeastSlot = 256;  // bytes per rank; pieces of a sum begin at multiples of it
// The index of the word that counts the closed windows; it follows the ranks' words.
constexpr int kClosed = PeerSums::kMostRanks;
constexpr What kAddress{OpPurpose::addresses};

struct PageOffer {
  std::int64_t pid = 0;
  int file = -1;
};

}  // namespace

PeerSums::PeerSums(std::shared_ptr<NcclGroup> group, Communicator& host)
    : group_(std::move(group)),
      host_(host),
      me_(static_cast<int>(to_int(host.rank()))),
      ranks_(static_cast<int>(to_int(host.size()))),
      stream_(make_priority_stream()) {
  auto mine = std::make_unique<SharedPage>();
  const std::vector<PageOffer> offers = gather_on_all(host_, PageOffer{::getpid(), mine->file()}, kAddress);
  for (int r = 0; r < ranks_; ++r) {
    const PageOffer& of = offers[static_cast<std::size_t>(r)];
    pages_.push_back(r == me_ ? std::move(mine) : std::make_unique<SharedPage>(of.pid, of.file));
  }
  host_.barrier();  // no rank closes a file that another still opens
}

PeerSums::~PeerSums() {
  (void)cudaSetDevice(group_->device);
  if (group_->aborted || !idle_within(stream_.get(), 5s)) PeerSums::abort();
  const bool idle = idle_within(stream_.get(), 1s);
  close(slots_);
  if (idle) return;
  for (const auto& page : pages_) page->keep();
}

// --- windows -----------------------------------------------------------------------------------------------

std::shared_ptr<void> PeerSums::window(Bytes bytes) {
  SC_CHECK(cudaSetDevice(group_->device));
  const std::int64_t slots = std::max(bytes.value(), ranks_ * kLeastSlot);
  if (slots > slots_.bytes) {
    SC_CHECK(cudaStreamSynchronize(stream_.get()));
    host_.barrier();  // no rank still writes to the smaller slots
    close(std::exchange(slots_, {}));
    slots_ = open(slots);
  }
  Window made = open(bytes.value());
  char* memory = made.of[static_cast<std::size_t>(me_)];
  windows_.emplace(memory, std::move(made));
  return {memory, [sums = shared_from_this()](void* of) {
            sums->close(sums->windows_.extract(static_cast<char*>(of)).mapped());
          }};
}

PeerSums::Window PeerSums::open(std::int64_t bytes) {
  void* memory = nullptr;
  if (cudaMalloc(&memory, static_cast<std::size_t>(bytes)) != cudaSuccess) {
    (void)cudaGetLastError();
    throw InputError(
        ExitCode::missing, "memory",
        "a window between GPUs asks for " + human_bytes(Bytes(bytes)) + ", which this GPU does not give",
        "a smaller batch.micro, activations=recompute, or --transport nccl");
  }
  cudaIpcMemHandle_t mine;
  SC_CHECK(cudaIpcGetMemHandle(&mine, memory));
  Window made{bytes, {}};
  const std::vector<cudaIpcMemHandle_t> handles = gather_on_all(host_, mine, kAddress);
  for (int r = 0; r < ranks_; ++r) {
    void* of = memory;
    if (r != me_)
      SC_CHECK(
          cudaIpcOpenMemHandle(&of, handles[static_cast<std::size_t>(r)], cudaIpcMemLazyEnablePeerAccess));
    made.of.push_back(static_cast<char*>(of));
  }
  return made;
}

// Frees a window's memory once no other rank has it open. All ranks release their windows in the same order.
void PeerSums::close(const Window& window) noexcept {
  if (window.of.empty()) return;
  (void)cudaSetDevice(group_->device);
  stuck_ =
      stuck_ || group_->aborted || !idle_within(stream_.get(), 5s) || cudaDeviceSynchronize() != cudaSuccess;
  if (stuck_) return;
  ++closed_;
  for (int r = 0; r < ranks_; ++r) {
    if (r == me_) continue;
    (void)cudaIpcCloseMemHandle(window.of[static_cast<std::size_t>(r)]);
    pages_[static_cast<std::size_t>(r)]->word(kClosed + me_).value = closed_;
  }
  const Clock::time_point limit = Clock::now() + 5s;
  for (int r = 0; r < ranks_; ++r) {
    while (r != me_ && pages_[static_cast<std::size_t>(me_)]->word(kClosed + r).value < closed_) {
      stuck_ = Clock::now() > limit;
      if (stuck_) return;
      std::this_thread::sleep_for(100us);
    }
  }
  (void)cudaFree(window.of[static_cast<std::size_t>(me_)]);
}

const PeerSums::Window* PeerSums::window_with(const at::Tensor& tensor) const {
  const char* begin = static_cast<const char*>(tensor.const_data_ptr());
  auto after = windows_.upper_bound(begin);
  if (after == windows_.begin()) return nullptr;
  const auto& [memory, window] = *--after;
  const bool inside = begin + tensor.nbytes() <= memory + window.bytes;
  return inside ? &window : nullptr;
}

// The addresses, by rank, in every rank's window, at the offset at which `tensor` lies in this rank's.
std::vector<char*> PeerSums::in_windows(const at::Tensor& tensor) const {
  std::vector<char*> of = window_with(tensor)->of;
  const std::ptrdiff_t offset =
      static_cast<const char*>(tensor.const_data_ptr()) - of[static_cast<std::size_t>(me_)];
  for (char*& memory : of) memory += offset;
  return of;
}

// --- operations --------------------------------------------------------------------------------------------

bool PeerSums::can(const Operation& op, const at::Tensor& from, const at::Tensor& to) const {
  if (op.elements.value() == 0) return false;
  const bool adds = op.dtype == DType::f32 || op.dtype == DType::bf16 || op.dtype == DType::f16;
  switch (op.kind) {
    case CommKind::all_gather:
      return window_with(to) != nullptr;
    case CommKind::reduce_scatter:
      return adds && window_with(from) != nullptr;
    case CommKind::all_reduce:
      return adds && slots_.bytes > 0;
    default:
      return false;
  }
}

// The word in which rank `of` lets `other` write into its window, and `other` says that it has.
std::uintptr_t PeerSums::word(int of, int other) const {
  return pages_[static_cast<std::size_t>(of)]->on_gpu(other);
}

void PeerSums::copy(char* to, const char* from, std::int64_t bytes) {
  SC_CHECK(
      cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, stream_.get()));
}

// Calls reach(rank) for every other rank, each rank beginning with the next one so that no two begin alike.
// Before the calls it waits until all others may be reached, afterwards until all have reached this rank. One
// stream does: with a stream per rank, lesson 10 is a tenth slower on four GPUs; with two lanes within 2 %.
template <class Reach>
void PeerSums::in_turn(const Reach& reach) {
  std::vector<WordOp> before, after;
  const auto other = [&](int k) { return (me_ + k) % ranks_; };
  for (int k = 1; k < ranks_; ++k) {
    before.push_back({WordOp::Kind::write, word(me_, other(k)), kOpen});
    after.push_back({WordOp::Kind::write, word(other(k), me_), kDone});
  }
  for (int k = 1; k < ranks_; ++k) {
    before.push_back({WordOp::Kind::wait, word(other(k), me_), kOpen});
    after.push_back({WordOp::Kind::wait, word(me_, other(k)), kDone});
  }
  enqueue(stream_.get(), before);
  for (int k = 1; k < ranks_; ++k) reach(other(k));
  enqueue(stream_.get(), after);
}

// Copies `mine`, `bytes` long, to slice me_ of every rank's window.
void PeerSums::gather(const char* mine, const std::vector<char*>& into, std::int64_t bytes) {
  char* own = into[static_cast<std::size_t>(me_)] + me_ * bytes;
  if (mine != own) copy(own, mine, bytes);
  in_turn([&](int r) { copy(into[static_cast<std::size_t>(r)] + me_ * bytes, mine, bytes); });
}

// Sums into `to` [n] what all ranks have for this one. for_rank(r) [n] is what this rank has for rank r.
template <class ForRank>
void PeerSums::add(DType dtype, std::int64_t n, const ForRank& for_rank, char* to) {
  const std::int64_t bytes = n * size_of(dtype);
  in_turn([&](int r) { copy(slots_.of[static_cast<std::size_t>(r)] + me_ * bytes, for_rank(r), bytes); });
  RankSum sum{dtype, n, ranks_, {}, to};
  for (int r = 0; r < ranks_; ++r)
    sum.parts[r] = r == me_ ? for_rank(me_) : slots_.of[static_cast<std::size_t>(me_)] + r * bytes;
  add_in_rank_order(sum, stream_.get());
}

// Sums part by part if every result lies in one window and can be pushed back. Otherwise every rank adds
// everything, in pieces that fit into the slots.
void PeerSums::sum(const Operation& op, const char* mine, const at::Tensor& to) {
  const std::int64_t n = op.elements.value(), size = size_of(op.dtype), part = n / ranks_ * size;
  const auto part_for = [&](int r) { return mine + r * part; };
  char* out = static_cast<char*>(to.mutable_data_ptr());
  if (op.kind == CommKind::reduce_scatter) {
    add(op.dtype, n / ranks_, part_for, out);
  } else if (n % ranks_ == 0 && window_with(to) != nullptr) {
    add(op.dtype, n / ranks_, part_for, out + me_ * part);
    gather(out + me_ * part, in_windows(to), part);
  } else {
    const std::int64_t most = slots_.bytes / ranks_ / kLeastSlot * kLeastSlot / size;
    for (std::int64_t begin = 0; begin < n; begin += most) {
      const auto piece = [&](int /*rank*/) { return mine + begin * size; };
      add(op.dtype, std::min(most, n - begin), piece, out + begin * size);
    }
  }
}

NcclEnd PeerSums::issue(const EventLease& start, const Operation& op, const at::Tensor& from,
                        const at::Tensor& to) {
  GpuMomentPtr began = group_->begin(stream_.get(), start);
  if (op.kind == CommKind::all_gather) {
    gather(static_cast<const char*>(from.const_data_ptr()), in_windows(to),
           static_cast<std::int64_t>(from.nbytes()));
  } else {
    sum(op, static_cast<const char*>(from.const_data_ptr()), to);
  }
  return group_->end(stream_.get(), std::move(began));
}

void PeerSums::abort() noexcept {
  (void)cudaSetDevice(group_->device);
  const Clock::time_point limit = Clock::now() + 1s;
  while (!idle_within(stream_.get(), 0ms) && Clock::now() < limit) {
    for (int r = 0; r < ranks_; ++r) {
      if (r == me_) continue;
      pages_[static_cast<std::size_t>(r)]->word(me_).value = kOpen;
      pages_[static_cast<std::size_t>(me_)]->word(r).value = kDone;
    }
    std::this_thread::sleep_for(100us);
  }
}

}  // namespace sc
