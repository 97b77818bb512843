#include "common/gpu/gpu.h"

#include <ATen/Context.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/cuda/CUDAAllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <spdlog/fmt/fmt.h>

#include <cstdlib>

#include "common/base/cuda_check.h"
#include "common/gpu/loadable.h"
#include "common/memory/stream_scratch.h"

namespace sc {
namespace {

std::string cuda_version(int number) { return fmt::format("{}.{}", number / 1000, number % 1000 / 10); }

c10::cuda::CUDAStream own_stream(int index) {
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(index));
  return c10::cuda::getStreamFromPool(/*isHighPriority=*/false, static_cast<c10::DeviceIndex>(index));
}

struct DeviceMemory {
  Bytes free, total;
};

DeviceMemory device_memory() {
  std::size_t free = 0, total = 0;
  SC_CHECK(cudaMemGetInfo(&free, &total));
  return {Bytes(static_cast<std::int64_t>(free)), Bytes(static_cast<std::int64_t>(total))};
}

// Checks that the kernels were compiled for this GPU: the list of architectures says what is wrong more
// clearly than CUDA's errors.
void refuse_without_kernels(int index) {
  cudaDeviceProp properties{};
  SC_CHECK(cudaGetDeviceProperties(&properties, index));
  const Capability capability{properties.major, properties.minor};
  const std::string gpu = fmt::format("GPU {} ({})", index, properties.name);
  if (!architectures_serve(STAGECRAFT_GPU_ARCHITECTURES, capability))
    throw no_kernels_for(gpu, capability, STAGECRAFT_GPU_ARCHITECTURES);
  cudaFuncAttributes of_kernel{};
  const cudaError_t loaded = load_a_kernel(of_kernel);
  if (loaded == cudaSuccess) return;
  throw InputError(ExitCode::missing, fmt::format("{}, compute capability {}", gpu, capability.text()),
                   fmt::format("its driver does not load this build's kernels ({}): {}",
                               STAGECRAFT_GPU_ARCHITECTURES, StatusTraits<cudaError_t>::text(loaded)),
                   "a driver of this CUDA or a newer one; common/setup/doctor.sh shows both");
}

GraphNodes nodes_of_capture() {
  cudaStreamCaptureStatus status{};
  cudaGraph_t graph = nullptr;
  SC_CHECK(cudaStreamGetCaptureInfo(c10::cuda::getCurrentCUDAStream(), &status, nullptr, &graph, nullptr,
                                    nullptr, nullptr));
  std::size_t count = 0;
  SC_CHECK(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  SC_CHECK(cudaGraphGetNodes(graph, nodes.data(), &count));
  GraphNodes of{static_cast<std::int64_t>(count), 0};
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    // The runtime has no type for nodes that write a flag for another GPU: CUDA 13 calls them unknown.
    if (cudaGraphNodeGetType(node, &type) != cudaSuccess) {
      (void)cudaGetLastError();
    } else if (type == cudaGraphNodeTypeEventRecord) {
      ++of.events;
    }
  }
  return of;
}

class CudaGpu final : public Gpu {
 public:
  explicit CudaGpu(int index)
      : index_(static_cast<c10::DeviceIndex>(index)), stream_(own_stream(index)), guard_(stream_) {}
  ~CudaGpu() override { (void)cudaDeviceSynchronize(); }  // nothing may still use memory that is being freed

  at::Device device() const override { return {at::kCUDA, index_}; }

  GpuFacts facts() const override {
    const cudaDeviceProp* properties = at::cuda::getDeviceProperties(index_);
    int runtime = 0, driver = 0;
    SC_CHECK(cudaRuntimeGetVersion(&runtime));
    SC_CHECK(cudaDriverGetVersion(&driver));
    const auto cudnn = static_cast<std::size_t>(at::detail::getCUDAHooks().versionCuDNN());
    const std::size_t cublas = cublasLtGetVersion();
    return {properties->name,
            Bytes(static_cast<std::int64_t>(properties->totalGlobalMem)),
            {properties->major, properties->minor},
            cuda_version(runtime),
            cuda_version(driver),
            fmt::format("{}.{}.{}", cudnn / 10000, cudnn % 10000 / 100, cudnn % 100),
            fmt::format("{}.{}.{}", cublas / 10000, cublas % 10000 / 100, cublas % 100)};
  }

  Bytes peak() const override { return Bytes(stats().allocated_bytes[0].peak); }
  void reset_peak() override { c10::cuda::CUDACachingAllocator::resetPeakStats(index_); }
  std::int64_t allocations() const override { return stats().allocation[0].allocated; }

  std::vector<AllocatorCheck::Part> constants(std::int64_t threads) const override {
    return {
        {"cuBLAS workspace", threads * Bytes(static_cast<std::int64_t>(at::cuda::getChosenWorkspaceSize()))},
        {"cuBLASLt workspace",
         threads * Bytes(static_cast<std::int64_t>(at::cuda::getCUDABlasLtWorkspaceSize()))}};
  }

  Bytes scratch() const override { return stream_scratch_bytes(); }
  Bytes free() const override { return device_memory().free; }

  void note_beside_allocator(const std::string& name, Bytes known) override {
    const DeviceMemory memory = device_memory();
    Bytes fresh = memory.total - memory.free - Bytes(stats().reserved_bytes[0].current) - known;
    for (const AllocatorCheck::Part& part : beside_) fresh = fresh - part.bytes;
    beside_.push_back({name, fresh});
  }
  const std::vector<AllocatorCheck::Part>& beside_allocator() const override { return beside_; }

  // Captures in thread-local mode, because the watchdog and NCCL's threads may query events meanwhile.
  void capture(const std::function<void()>& step) override {
    graph_ = std::make_unique<at::cuda::CUDAGraph>();
    graph_->capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    step();
    nodes_ = nodes_of_capture();
    graph_->capture_end();
  }
  bool captured() const override { return graph_ != nullptr; }
  std::optional<GraphNodes> graph_nodes() const override { return nodes_; }
  void drop_graph() noexcept override {
    (void)cudaDeviceSynchronize();  // errors are reported to whoever asks for results
    graph_.reset();
  }
  void replay() override { graph_->replay(); }

 private:
  [[nodiscard]] c10::CachingDeviceAllocator::DeviceStats stats() const {
    return c10::cuda::CUDACachingAllocator::getDeviceStats(index_);
  }

  c10::DeviceIndex index_;
  c10::cuda::CUDAStream stream_;
  c10::cuda::CUDAStreamGuard guard_;
  std::unique_ptr<at::cuda::CUDAGraph> graph_;
  std::optional<GraphNodes> nodes_;
  std::vector<AllocatorCheck::Part> beside_;
};

}  // namespace

std::unique_ptr<Gpu> take_gpu(int index) {
  if (std::getenv("PYTORCH_CUDA_ALLOC_CONF") == nullptr && std::getenv("PYTORCH_ALLOC_CONF") == nullptr)
    c10::CachingAllocator::setAllocatorSettings("expandable_segments:True");
  at::globalContext().lazyInitDevice(at::kCUDA);  // its allocator may be queried before its first allocation
  auto gpu = std::make_unique<CudaGpu>(index);
  refuse_without_kernels(index);
  return gpu;
}

bool gpu_available() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

}  // namespace sc
