#include "common/comm/nccl/peer_memory.h"

#include <cuda.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <thread>

#include "common/comm/nccl/cuda_check.h"

namespace sc {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
constexpr std::size_t kPage = 4096;

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

void wait_for_word(cudaStream_t stream, std::uintptr_t word, std::uint32_t value) {
  require(StreamMemory::get().wait(stream, word, value, CU_STREAM_WAIT_VALUE_EQ), "cuStreamWaitValue32");
}
void write_word(cudaStream_t stream, std::uintptr_t word, std::uint32_t value) {
  require(StreamMemory::get().write(stream, word, value, CU_STREAM_WRITE_VALUE_DEFAULT),
          "cuStreamWriteValue32");
}

bool idle_within(cudaStream_t stream, std::chrono::milliseconds limit) {
  const Clock::time_point end = Clock::now() + limit;
  cudaError_t status = cudaStreamQuery(stream);
  while (status == cudaErrorNotReady && Clock::now() < end) {
    std::this_thread::sleep_for(100us);
    status = cudaStreamQuery(stream);
  }
  if (status == cudaErrorNotReady) (void)cudaGetLastError();
  return status != cudaErrorNotReady;
}

SharedPage::SharedPage() {
  static_assert(kWords * sizeof(Word) <= kPage);
  file_ = ::memfd_create("stagecraft words", MFD_CLOEXEC);
  if (file_ < 0) fail("memfd_create");
  if (::ftruncate(file_, kPage) != 0) fail("ftruncate");
  map(file_);
}

SharedPage::SharedPage(std::int64_t pid, int file) {
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(file);
  const int opened = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (opened < 0) fail(path);
  map(opened);
  ::close(opened);
}

void SharedPage::map(int file) {
  void* page = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (page == MAP_FAILED) fail("mmap");
  words_ = static_cast<Word*>(page);
  SC_CHECK(cudaHostRegister(page, kPage, cudaHostRegisterMapped));
  void* on_gpu = nullptr;
  SC_CHECK(cudaHostGetDevicePointer(&on_gpu, page, 0));
  on_gpu_ = reinterpret_cast<std::uintptr_t>(on_gpu);
}

SharedPage::~SharedPage() {
  if (file_ >= 0) ::close(file_);
  if (kept_) return;
  (void)cudaHostUnregister(words_);
  ::munmap(words_, kPage);
}

PeerMemory::~PeerMemory() {
  for (const auto& [key, memory] : open_) (void)cudaIpcCloseMemHandle(memory);
}

const char* PeerMemory::open(int rank, const cudaIpcMemHandle_t& handle) {
  const std::vector<char> bytes(handle.reserved, handle.reserved + sizeof handle.reserved);
  void*& memory = open_[{rank, bytes}];
  if (memory == nullptr) SC_CHECK(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess));
  return static_cast<const char*>(memory);
}

}  // namespace sc
