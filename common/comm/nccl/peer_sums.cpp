#include "common/comm/nccl/peer_sums.h"

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "common/comm/nccl/cuda_check.h"
#include "common/comm/nccl/rank_sum_kernel.h"

namespace sc {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kTaken = 0, kOffered = 1;

struct PageOffer {
  std::int64_t pid = 0;
  int file = -1;
};
struct MemoryOffer {
  cudaIpcMemHandle_t handle{};
  std::int64_t offset = 0;
};

/// What every rank says, by rank. One gather, unlike all_gather_values(): its messages could meet those of a pair that connects.
template <class T>
std::vector<T> exchange(Communicator& host, const T& mine) {
  const auto size = static_cast<std::int64_t>(sizeof(T)), ranks = to_int(host.size());
  const at::Tensor one = at::empty({size}, at::kByte);
  at::Tensor all = at::empty({size * ranks}, at::kByte);
  std::memcpy(one.mutable_data_ptr(), &mine, sizeof mine);
  host.all_gather(one, all, {OpPurpose::addresses}).wait();
  std::vector<T> said(static_cast<std::size_t>(ranks));
  std::memcpy(said.data(), all.const_data_ptr(), said.size() * sizeof(T));
  return said;
}

}  // namespace

PeerSums::PeerSums(std::shared_ptr<NcclGroup> group, Communicator& host)
    : group_(std::move(group)),
      host_(host),
      me_(static_cast<int>(to_int(host.rank()))),
      ranks_(static_cast<int>(to_int(host.size()))),
      stream_(make_priority_stream()) {
  auto mine = std::make_unique<SharedPage>();
  const std::vector<PageOffer> offers = exchange(host_, PageOffer{::getpid(), mine->file()});
  for (int r = 0; r < ranks_; ++r) {
    const PageOffer& of = offers[static_cast<std::size_t>(r)];
    pages_.push_back(r == me_ ? std::move(mine) : std::make_unique<SharedPage>(of.pid, of.file));
  }
  host_.barrier();  // nobody closes what another opens
}

PeerSums::~PeerSums() {
  (void)cudaSetDevice(group_->device);
  if (group_->aborted || !idle_within(stream_.get(), 5s)) let_go();
  const bool idle = idle_within(stream_.get(), 1s);
  if (idle && slots_ != nullptr) (void)cudaFree(slots_);
  if (idle) return;
  for (const auto& page : pages_) page->keep();
}

bool PeerSums::can(const Operation& op) const {
  if (ranks_ == 1 || ranks_ > RankSum::kMost) return false;
  switch (op.kind) {
    case CommKind::all_gather:
      return true;
    case CommKind::reduce_scatter:
      return op.dtype == DType::f32 || op.dtype == DType::bf16 || op.dtype == DType::f16;
    case CommKind::all_reduce:
      return op.elements.value() % ranks_ == 0 &&
             (op.dtype == DType::f32 || op.dtype == DType::bf16 || op.dtype == DType::f16);
    default:
      return false;
  }
}

// Rank `of` says with it that `reader` may read what it sends from.
std::uintptr_t PeerSums::word(int of, int reader) const {
  return pages_[static_cast<std::size_t>(of)]->on_gpu(reader);
}

const std::vector<const char*>& PeerSums::opened(const at::Tensor& tensor, bool captured) {
  const void* data = tensor.const_data_ptr();
  if (const auto known = tensors_.find(data); known != tensors_.end()) {
    const auto storage = known->second.storage.lock();
    if (storage && storage.get() == tensor.storage().unsafeGetStorageImpl()) return known->second.of;
    tensors_.erase(known);
  }
  if (captured)
    throw DeviceError(
        "a sum's or gather's first use of a tensor cannot be captured in a graph; run it once before");
  std::size_t size = 0;
  char* base =
      static_cast<char*>(c10::cuda::CUDACachingAllocator::getBaseAllocation(const_cast<void*>(data), &size));
  MemoryOffer mine;
  SC_CHECK(cudaIpcGetMemHandle(&mine.handle, base));
  mine.offset = static_cast<const char*>(data) - base;
  const std::vector<MemoryOffer> offers = exchange(host_, mine);
  Opened made{c10::weak_intrusive_ptr<c10::StorageImpl>(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
                  tensor.storage().unsafeGetStorageImpl())),
              {}};
  for (int r = 0; r < ranks_; ++r) {
    const MemoryOffer& of = offers[static_cast<std::size_t>(r)];
    made.of.push_back(r == me_ ? static_cast<const char*>(data) : memory_.open(r, of.handle) + of.offset);
  }
  return tensors_.emplace(data, std::move(made)).first->second.of;
}

void PeerSums::make_slots(std::int64_t bytes, bool captured) {
  if (bytes <= slot_bytes_) return;
  if (captured)
    throw DeviceError("a larger sum than any before cannot be captured in a graph; run it once before");
  SC_CHECK(cudaStreamSynchronize(stream_.get()));
  if (slots_ != nullptr) SC_CHECK(cudaFree(slots_));
  slots_ = nullptr;
  void* memory = nullptr;
  SC_CHECK(cudaMalloc(&memory, static_cast<std::size_t>(bytes * (ranks_ - 1))));
  slots_ = static_cast<char*>(memory);
  slot_bytes_ = bytes;
}

void PeerSums::offer() {
  for (int r = 0; r < ranks_; ++r)
    if (r != me_) write_word(stream_.get(), word(me_, r), kOffered);
}

// pull(rank, k): of the k-th other rank, beginning with the next one, so that no two ranks pull from one.
template <class Pull>
void PeerSums::pull_from_all(const Pull& pull) {
  for (int k = 1; k < ranks_; ++k) {
    const int from = (me_ + k) % ranks_;
    wait_for_word(stream_.get(), word(from, me_), kOffered);
    pull(from, k - 1);
    write_word(stream_.get(), word(from, me_), kTaken);
  }
}

// Then what this rank sent from may be written again.
void PeerSums::until_taken() {
  for (int r = 0; r < ranks_; ++r)
    if (r != me_) wait_for_word(stream_.get(), word(me_, r), kTaken);
}

// Part r of `into` is what rank r has at from[r] + offset.
void PeerSums::gather(const at::Tensor& into, const std::vector<const char*>& from, std::int64_t offset,
                      std::int64_t bytes) {
  char* out = static_cast<char*>(into.mutable_data_ptr());
  const auto place = [&](int r) {
    SC_CHECK(cudaMemcpyAsync(out + r * bytes, from[static_cast<std::size_t>(r)] + offset * r,
                             static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, stream_.get()));
  };
  offer();
  pull_from_all([&](int r, int /*k*/) { place(r); });
  if (from[static_cast<std::size_t>(me_)] + offset * me_ != out + me_ * bytes) place(me_);
  until_taken();
}

NcclEnd PeerSums::issue(const EventLease& start, const Operation& op, const at::Tensor& from,
                        const at::Tensor& to, bool captured) {
  const auto bytes = static_cast<std::int64_t>(from.nbytes());
  const std::vector<const char*>& parts = opened(from, captured);
  const bool all = op.kind == CommKind::all_reduce;
  const std::vector<const char*>* sums = all ? &opened(to, captured) : nullptr;
  if (op.kind != CommKind::all_gather) make_slots(bytes / ranks_, captured);
  NcclEnd end{group_->events->lease(), {}, {}};
  SC_CHECK(cudaStreamWaitEvent(stream_.get(), start.get(), 0));
  if (group_->traces()) end.began = mark(stream_.get(), *group_->moments);
  if (op.kind == CommKind::all_gather) {
    gather(to, parts, 0, bytes);
  } else {
    const std::int64_t part = bytes / ranks_;
    RankSum sum{
        op.dtype, op.elements.value() / ranks_, ranks_, {}, static_cast<char*>(to.mutable_data_ptr())};
    if (all) sum.to = static_cast<char*>(sum.to) + me_ * part;
    sum.parts[me_] = parts[static_cast<std::size_t>(me_)] + me_ * part;
    offer();
    pull_from_all([&](int r, int k) {
      char* slot = slots_ + k * slot_bytes_;
      SC_CHECK(cudaMemcpyAsync(slot, parts[static_cast<std::size_t>(r)] + me_ * part,
                               static_cast<std::size_t>(part), cudaMemcpyDeviceToDevice, stream_.get()));
      sum.parts[r] = slot;
    });
    until_taken();  // an all_reduce may write where it reads
    add_in_rank_order(sum, stream_.get());
    if (all) gather(to, *sums, part, part);
  }
  if (group_->traces()) end.ended = mark(stream_.get(), *group_->moments);
  SC_CHECK(cudaEventRecord(end.event.get(), stream_.get()));
  return end;
}

void PeerSums::let_go() noexcept {
  (void)cudaSetDevice(group_->device);
  const Clock::time_point limit = Clock::now() + 1s;
  while (!idle_within(stream_.get(), 0ms) && Clock::now() < limit) {
    for (int r = 0; r < ranks_; ++r) {
      if (r == me_) continue;
      pages_[static_cast<std::size_t>(r)]->word(me_).value = kOffered;
      pages_[static_cast<std::size_t>(me_)]->word(r).value = kTaken;
    }
    std::this_thread::sleep_for(100us);
  }
}

}  // namespace sc
