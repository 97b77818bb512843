#include "common/comm/nccl/shared_page.h"

#include <cuda.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "common/comm/nccl/cuda_check.h"

namespace sc {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
constexpr std::size_t kPage = 4096;

CUresult batch(cudaStream_t stream, std::vector<CUstreamBatchMemOpParams>& ops) {
  using Function = CUresult (*)(CUstream, unsigned, CUstreamBatchMemOpParams*, unsigned);
  static const auto function = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    SC_CHECK(
        cudaGetDriverEntryPointByVersion("cuStreamBatchMemOp", &entry, 12000, cudaEnableDefault, &found));
    if (found != cudaDriverEntryPointSuccess) throw DeviceError("cuStreamBatchMemOp: this driver has none");
    return reinterpret_cast<Function>(entry);
  }();
  return function(stream, static_cast<unsigned>(ops.size()), ops.data(), 0);
}

[[noreturn]] void fail(const std::string& what) { throw DeviceError(what + ": " + std::strerror(errno)); }

}  // namespace

void enqueue(cudaStream_t stream, std::span<const WordOp> ops) {
  std::vector<CUstreamBatchMemOpParams> batched;
  for (const WordOp& op : ops) {
    CUstreamBatchMemOpParams& of = batched.emplace_back();
    std::memset(&of, 0, sizeof of);
    if (op.kind == WordOp::Kind::wait) {
      of.waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_32, op.word, {op.value}, CU_STREAM_WAIT_VALUE_EQ, 0};
    } else {
      of.writeValue = {
          CU_STREAM_MEM_OP_WRITE_VALUE_32, op.word, {op.value}, CU_STREAM_WRITE_VALUE_DEFAULT, 0};
    }
  }
  if (const CUresult result = batch(stream, batched); result != CUDA_SUCCESS)
    throw DeviceError("cuStreamBatchMemOp: CUDA driver error " + std::to_string(static_cast<int>(result)));
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

}  // namespace sc
