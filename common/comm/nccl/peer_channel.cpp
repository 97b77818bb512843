#include "common/comm/nccl/peer_channel.h"

#include <ATen/ops/empty.h>
#include <cuda.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "common/comm/nccl/cuda_check.h"

namespace sc {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// On a page of its own. A word is 1 while its slot is full. Written by GPUs, and by the host at the end.
struct PeerChannel::Words {
  struct alignas(64) Word {
    std::atomic<std::uint32_t> full;
  };
  Word slots[kSlots];
  alignas(64) std::atomic<std::uint32_t> opened, closed;  // by the receiver
};

namespace {

constexpr std::size_t kPage = 4096;

// A stream's memory operations are the driver's; LibTorch links the runtime alone.
struct StreamMemory {
  using Function = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
  Function wait = entry("cuStreamWaitValue32"), write = entry("cuStreamWriteValue32");

  static Function entry(const char* name) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    SC_CHECK(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found));
    if (found != cudaDriverEntryPointSuccess) throw DeviceError(std::string(name) + ": this driver has none");
    return reinterpret_cast<Function>(function);
  }
  static const StreamMemory& get() {
    static const StreamMemory memory;
    return memory;
  }
};

void require(CUresult result, const char* call) {
  if (result != CUDA_SUCCESS)
    throw DeviceError(std::string(call) + ": CUDA driver error " + std::to_string(static_cast<int>(result)));
}

[[noreturn]] void fail(const std::string& what) { throw DeviceError(what + ": " + std::strerror(errno)); }

}  // namespace

PeerChannel::PeerChannel(std::shared_ptr<NcclGroup> group) : group_(std::move(group)), sends_(true) {
  file_ = ::memfd_create("stagecraft messages", MFD_CLOEXEC);
  if (file_ < 0) fail("memfd_create");
  if (::ftruncate(file_, kPage) != 0) fail("ftruncate");
  map(file_);
  void* ring = nullptr;
  SC_CHECK(cudaMalloc(&ring, kSlots * static_cast<std::size_t>(kSlotBytes)));
  ring_ = static_cast<char*>(ring);
  SC_CHECK(cudaIpcGetMemHandle(&handle_, ring));
  stream_ = make_priority_stream();
}

PeerChannel::PeerChannel(std::shared_ptr<NcclGroup> group, const Hello& hello)
    : group_(std::move(group)), sends_(false), handle_(hello.ring) {
  const std::string path = "/proc/" + std::to_string(hello.pid) + "/fd/" + std::to_string(hello.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) fail(path);
  map(file);
  ::close(file);
  void* ring = nullptr;
  SC_CHECK(cudaIpcOpenMemHandle(&ring, handle_, cudaIpcMemLazyEnablePeerAccess));
  ring_ = static_cast<char*>(ring);
  stream_ = make_priority_stream();
  words_->opened = 1;
}

void PeerChannel::map(int file) {
  void* page = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (page == MAP_FAILED) fail("mmap");
  words_ = static_cast<Words*>(page);
  SC_CHECK(cudaHostRegister(page, kPage, cudaHostRegisterMapped));
  void* on_gpu = nullptr;
  SC_CHECK(cudaHostGetDevicePointer(&on_gpu, page, 0));
  words_on_gpu_ = reinterpret_cast<std::uintptr_t>(on_gpu);
}

PeerChannel::~PeerChannel() {
  (void)cudaSetDevice(group_->device);
  if (group_->aborted || !idle_within(5s)) let_go();
  const bool idle = idle_within(1s);
  if (!sends_) {
    if (idle) {
      (void)cudaIpcCloseMemHandle(ring_);
      words_->closed = 1;
    }
  } else {
    // What has been sent lies in the ring until the receiver, who may not have come yet, has taken it; but no
    // longer than one that is gone deserves.
    const Clock::time_point limit = Clock::now() + (group_->aborted ? 0s : 5s);
    while (words_->closed == 0 && Clock::now() < limit) std::this_thread::sleep_for(1ms);
    if (idle && words_->closed == 1) (void)cudaFree(ring_);
    ::close(file_);
  }
  if (!idle) return;  // the page may still be waited for
  (void)cudaHostUnregister(words_);
  ::munmap(words_, kPage);
}

PeerChannel::Hello PeerChannel::hello() const { return {::getpid(), file_, handle_}; }

NcclEnd PeerChannel::issue(const EventLease& start, const at::Tensor& tensor) {
  const StreamMemory& memory = StreamMemory::get();
  const cudaStream_t stream = stream_.get();
  NcclEnd end{group_->events->lease(), {}, {}};
  SC_CHECK(cudaStreamWaitEvent(stream, start.get(), 0));
  if (group_->traces()) end.began = mark(stream, *group_->moments);
  char* data = const_cast<char*>(static_cast<const char*>(tensor.const_data_ptr()));
  const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
  for (std::int64_t begin = 0; begin < bytes; begin += kSlotBytes) {
    const CUdeviceptr word = words_on_gpu_ + static_cast<std::size_t>(slot_) * sizeof(Words::Word);
    char* slot = ring_ + slot_ * kSlotBytes;
    slot_ = (slot_ + 1) % kSlots;
    const auto size = static_cast<std::size_t>(std::min(kSlotBytes, bytes - begin));
    require(memory.wait(stream, word, sends_ ? 0 : 1, CU_STREAM_WAIT_VALUE_EQ), "cuStreamWaitValue32");
    SC_CHECK(cudaMemcpyAsync(sends_ ? slot : data + begin, sends_ ? data + begin : slot, size,
                             cudaMemcpyDeviceToDevice, stream));
    require(memory.write(stream, word, sends_ ? 1 : 0, CU_STREAM_WRITE_VALUE_DEFAULT),
            "cuStreamWriteValue32");
  }
  if (group_->traces()) end.ended = mark(stream, *group_->moments);
  SC_CHECK(cudaEventRecord(end.event.get(), stream));
  return end;
}

bool PeerChannel::idle_within(std::chrono::milliseconds limit) const {
  const Clock::time_point end = Clock::now() + limit;
  cudaError_t status = cudaStreamQuery(stream_.get());
  while (status == cudaErrorNotReady && Clock::now() < end) {
    std::this_thread::sleep_for(100us);
    status = cudaStreamQuery(stream_.get());
  }
  if (status == cudaErrorNotReady) (void)cudaGetLastError();
  return status != cudaErrorNotReady;
}

void PeerChannel::let_go() noexcept {
  (void)cudaSetDevice(group_->device);
  const Clock::time_point limit = Clock::now() + 1s;
  while (!idle_within(0ms) && Clock::now() < limit) {
    for (Words::Word& word : words_->slots) word.full = sends_ ? 0 : 1;
    std::this_thread::sleep_for(100us);
  }
}

namespace {

// What a rank says of itself, and what it offers for a try.
struct Offer {
  char host[64] = {};  // the same boot of the same kernel
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
  SC_CHECK(cudaMalloc(&memory, kPage));
  if (cudaIpcGetMemHandle(&mine.hello.ring, memory) != cudaSuccess) {
    (void)cudaGetLastError();
    mine.host[0] = 0;  // nobody else need try
  }
  const auto bytes = static_cast<std::int64_t>(sizeof(Offer));
  at::Tensor offer = at::empty({bytes}, at::kByte), offers = at::empty({bytes * world}, at::kByte);
  std::memcpy(offer.mutable_data_ptr(), &mine, sizeof mine);
  host.all_gather(offer, offers, {OpPurpose::addresses}).wait();
  at::Tensor row = at::empty({world}, at::kByte), rows = at::empty({world * world}, at::kByte);
  for (std::int64_t r = 0; r < world; ++r) {
    Offer other;
    std::memcpy(&other, offers.const_data_ptr<std::uint8_t>() + r * bytes, sizeof other);
    row.mutable_data_ptr<std::uint8_t>()[r] = r != to_int(host.rank()) && can_open(mine, other) ? 1 : 0;
  }
  host.all_gather(row, rows, {OpPurpose::addresses}).wait();  // and nobody frees what another tries
  for (std::size_t i = 0; i < reach.size(); ++i) reach[i] = rows.const_data_ptr<std::uint8_t>()[i] != 0;
  (void)cudaFree(memory);
  if (mine.hello.file >= 0) ::close(mine.hello.file);
  return reach;
}

}  // namespace sc
