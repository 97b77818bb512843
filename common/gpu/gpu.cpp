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

// Of the current device. A list of architectures says what is wrong before CUDA's words have to.
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

// Of the graph that the current stream captures.
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
    // Of nodes that write a flag for another GPU the runtime has no type: CUDA 13 calls them unknown.
    if (cudaGraphNodeGetType(node, &type) != cudaSuccess) {
      (void)cudaGetLastError();
    } else if (type == cudaGraphNodeTypeEventRecord) {
      ++of.events;
    }
  }
  return of;
}

}  // namespace

struct Gpu::State {
  explicit State(int device)
      : index(static_cast<c10::DeviceIndex>(device)), stream(own_stream(device)), guard(stream) {}
  c10::DeviceIndex index;
  c10::cuda::CUDAStream stream;
  c10::cuda::CUDAStreamGuard guard;
  std::unique_ptr<at::cuda::CUDAGraph> graph;
  std::optional<GraphNodes> nodes;
  std::vector<AllocatorCheck::Part> beside;
};

Gpu::Gpu(int index) {
  if (std::getenv("PYTORCH_CUDA_ALLOC_CONF") == nullptr && std::getenv("PYTORCH_ALLOC_CONF") == nullptr)
    c10::CachingAllocator::setAllocatorSettings("expandable_segments:True");
  at::globalContext().lazyInitDevice(at::kCUDA);  // its allocator may be asked before it hands anything out
  state_ = std::make_unique<State>(index);
  refuse_without_kernels(index);
}

Gpu::~Gpu() {
  if (state_) (void)cudaDeviceSynchronize();  // nothing runs on memory that is being given back
}

at::Device Gpu::device() const { return {at::kCUDA, state_->index}; }

GpuFacts Gpu::facts() const {
  const cudaDeviceProp* properties = at::cuda::getDeviceProperties(state_->index);
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

Bytes Gpu::peak() const {
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(state_->index);
  return Bytes(stats.allocated_bytes[0].peak);
}

void Gpu::reset_peak() { c10::cuda::CUDACachingAllocator::resetPeakStats(state_->index); }

std::int64_t Gpu::allocations() const {
  return c10::cuda::CUDACachingAllocator::getDeviceStats(state_->index).allocation[0].allocated;
}

std::vector<AllocatorCheck::Part> Gpu::constants() const {
  return {{"cuBLAS workspace", Bytes(static_cast<std::int64_t>(at::cuda::getChosenWorkspaceSize()))},
          {"cuBLASLt workspace", Bytes(static_cast<std::int64_t>(at::cuda::getCUDABlasLtWorkspaceSize()))}};
}

Bytes Gpu::scratch() const { return stream_scratch_bytes(); }

Bytes Gpu::free() const { return device_memory().free; }

void Gpu::note_beside_allocator(const std::string& name, Bytes known) {
  const DeviceMemory memory = device_memory();
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(state_->index);
  Bytes fresh = memory.total - memory.free - Bytes(stats.reserved_bytes[0].current) - known;
  for (const AllocatorCheck::Part& part : state_->beside) fresh = fresh - part.bytes;
  state_->beside.push_back({name, fresh});
}

const std::vector<AllocatorCheck::Part>& Gpu::beside_allocator() const { return state_->beside; }

// Thread-local: the watchdog and NCCL's threads may ask for events meanwhile.
void Gpu::capture(const std::function<void()>& step) {
  state_->graph = std::make_unique<at::cuda::CUDAGraph>();
  state_->graph->capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
  step();
  state_->nodes = nodes_of_capture();
  state_->graph->capture_end();
}

std::optional<GraphNodes> Gpu::graph_nodes() const { return state_->nodes; }

bool Gpu::captured() const { return state_->graph != nullptr; }

void Gpu::drop_graph() noexcept {
  (void)cudaDeviceSynchronize();  // an error is told by whoever asks for results
  state_->graph.reset();
}

void Gpu::replay() { state_->graph->replay(); }

bool gpu_available() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

}  // namespace sc
