#include "common/comm/nccl/peer_channel.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "common/comm/gather_text.h"
#include "common/comm/nccl/cuda_check.h"

namespace sc {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

constexpr std::uint32_t kEmpty = 0, kFull = 1;
// The index of the word by which the receiver says that it has closed the ring; it follows the slots' words.
constexpr int kClosed = PeerChannel::kSlots;
constexpr std::size_t kTry = 4096;  // bytes that peers_within_reach offers for a try

}  // namespace

PeerChannel::PeerChannel(std::shared_ptr<NcclGroup> group)
    : group_(std::move(group)), sends_(true), words_(std::make_unique<SharedPage>()) {
  SC_CHECK(cudaMalloc(&ring_, kSlots * static_cast<std::size_t>(kSlotBytes)));
  SC_CHECK(cudaIpcGetMemHandle(&handle_, ring_));
}

PeerChannel::PeerChannel(std::shared_ptr<NcclGroup> group, const Hello& hello)
    : group_(std::move(group)),
      sends_(false),
      words_(std::make_unique<SharedPage>(hello.pid, hello.file)),
      handle_(hello.ring) {
  void* ring = nullptr;
  SC_CHECK(cudaIpcOpenMemHandle(&ring, handle_, cudaIpcMemLazyEnablePeerAccess));
  ring_ = static_cast<char*>(ring);
}

PeerChannel::~PeerChannel() {
  (void)cudaSetDevice(group_->device);
  if (group_->aborted || !idle_within(stream_.get(), 5s)) PeerChannel::abort();
  const bool idle = idle_within(stream_.get(), 1s);
  std::atomic<std::uint32_t>& closed = words_->word(kClosed).value;
  if (!sends_) {
    if (idle) {
      (void)cudaIpcCloseMemHandle(ring_);
      closed = 1;
    }
  } else {
    // Messages lie in the ring until the receiver has taken them, and it may come late. A receiver that is
    // gone is waited for 5 s.
    const Clock::time_point limit = Clock::now() + (group_->aborted ? 0s : 5s);
    while (closed == 0 && Clock::now() < limit) std::this_thread::sleep_for(1ms);
    if (idle && closed == 1) (void)cudaFree(ring_);
  }
  if (!idle) words_->keep();
}

PeerChannel::Hello PeerChannel::hello() const { return {::getpid(), words_->file(), handle_}; }

NcclEnd PeerChannel::issue(const EventLease& start, const at::Tensor& tensor) {
  const cudaStream_t stream = stream_.get();
  GpuMomentPtr began = group_->begin(stream, start);
  char* data = const_cast<char*>(static_cast<const char*>(tensor.const_data_ptr()));
  const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
  for (std::int64_t begin = 0; begin < bytes; begin += kSlotBytes) {
    const std::uintptr_t word = words_->on_gpu(slot_);
    const WordOp before{WordOp::Kind::wait, word, sends_ ? kEmpty : kFull},
        behind{WordOp::Kind::write, word, sends_ ? kFull : kEmpty};
    char* slot = ring_ + slot_ * kSlotBytes;
    slot_ = (slot_ + 1) % kSlots;
    const auto size = static_cast<std::size_t>(std::min(kSlotBytes, bytes - begin));
    enqueue(stream, {&before, 1});
    SC_CHECK(cudaMemcpyAsync(sends_ ? slot : data + begin, sends_ ? data + begin : slot, size,
                             cudaMemcpyDeviceToDevice, stream));
    enqueue(stream, {&behind, 1});
  }
  return group_->end(stream, std::move(began));
}

void PeerChannel::abort() noexcept {
  (void)cudaSetDevice(group_->device);
  const Clock::time_point limit = Clock::now() + 1s;
  while (!idle_within(stream_.get(), 0ms) && Clock::now() < limit) {
    for (int slot = 0; slot < kSlots; ++slot) words_->word(slot).value = sends_ ? kEmpty : kFull;
    std::this_thread::sleep_for(100us);
  }
}

namespace {

// How one rank's process is reached by the others, and the memory that they try to open.
struct Offer {
  char host[64] = {};  // identifies the boot of the kernel
  PeerChannel::Hello hello;
};

void name_host(char (&name)[64]) {
  const int file = ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  (void)!::read(file, name, sizeof name - 1);
  ::close(file);
}

bool can_open(const Offer& mine, const Offer& other) {
  if (mine.host[0] == 0 || std::memcmp(mine.host, other.host, sizeof mine.host) != 0) return false;
  const std::string path =
      "/proc/" + std::to_string(other.hello.pid) + "/fd/" + std::to_string(other.hello.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return false;
  ::close(file);
  void* memory = nullptr;
  if (cudaIpcOpenMemHandle(&memory, other.hello.ring, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess) {
    (void)cudaGetLastError();
    return false;
  }
  (void)cudaIpcCloseMemHandle(memory);
  return true;
}

}  // namespace

std::vector<bool> peers_within_reach(Communicator& host, int device) {
  const auto world = to_int(host.size());
  std::vector<bool> reach(static_cast<std::size_t>(world * world));
  if (world == 1) return reach;
  SC_CHECK(cudaSetDevice(device));
  Offer mine;
  name_host(mine.host);
  mine.hello.pid = ::getpid();
  mine.hello.file = ::memfd_create("stagecraft try", MFD_CLOEXEC);
  void* memory = nullptr;
  SC_CHECK(cudaMalloc(&memory, kTry));
  if (cudaIpcGetMemHandle(&mine.hello.ring, memory) != cudaSuccess) {
    (void)cudaGetLastError();
    mine.host[0] = 0;  // tells the others not to try
  }
  const What address{OpPurpose::addresses};
  const std::vector<Offer> offers = gather_on_all(host, mine, address);
  std::string row(static_cast<std::size_t>(world), 0);
  for (std::size_t r = 0; r < row.size(); ++r)
    row[r] = Rank{static_cast<int>(r)} != host.rank() && can_open(mine, offers[r]) ? 1 : 0;
  // This gather is also a barrier: no rank frees memory that another is still trying to open.
  const std::string rows = gather_bytes(host, row, address);
  for (std::size_t i = 0; i < reach.size(); ++i) reach[i] = rows[i] != 0;
  (void)cudaFree(memory);
  if (mine.hello.file >= 0) ::close(mine.hello.file);
  return reach;
}

}  // namespace sc
