// Ranks with GPUs under mpirun, for the tests of the NCCL and staged communicators.
#pragma once

#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/from_blob.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "common/comm/nccl/nccl_communicator.h"
#include "common/comm/nccl/nccl_devices.h"
#include "common/watch/launch.h"
#include "tests/comm/mpi_test_main.h"
#include "tests/comm/rank_values.h"

namespace sc::test {

/// Why this machine cannot run these ranks; empty if it can. The same on all ranks of a host.
inline std::string why_not(bool share) {
  int gpus = 0;
  const cudaError_t status = cudaGetDeviceCount(&gpus);
  (void)cudaGetLastError();
  if (status != cudaSuccess || gpus == 0) {
    return std::string("needs a GPU: ") + (status == cudaSuccess ? "none found" : cudaGetErrorString(status));
  }
  const auto ranks = to_int(detect_launch(process_environment()).local_world);
  if (share || ranks <= gpus) return "";
  return "needs " + std::to_string(ranks) + " GPUs, this machine has " + std::to_string(gpus);
}

/// Whether this process has a context on a device, as the driver says. Makes none. (LibTorch's own question
/// works only after LibTorch has started CUDA.)
inline bool has_context(int device) {
  using GetState = int (*)(int device, unsigned* flags, int* active);  // cuDevicePrimaryCtxGetState
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  EXPECT_EQ(cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &function, 12000,
                                             cudaEnableDefault, &found),
            cudaSuccess);
  if (function == nullptr) return false;
  unsigned flags = 0;
  int active = -1;
  EXPECT_EQ(reinterpret_cast<GetState>(function)(device, &flags, &active), 0);
  return active == 1;
}

/// The communicator under test, made by the first test that needs it and destroyed before MPI ends.
class GpuWorld : public ::testing::Environment {
 public:
  static std::unique_ptr<Communicator>& comm() {
    static std::unique_ptr<Communicator> comm;
    return comm;
  }
  void TearDown() override { comm().reset(); }
};

/// The base of tests on one Backend: static constexpr bool kShare; static std::unique_ptr<Communicator>
/// make(int device).
template <class Backend, class Base = ::testing::Test>
class GpuRankTest : public Base {
 protected:
  void SetUp() override {
    const std::string reason = why_not(Backend::kShare);
    if (!reason.empty()) GTEST_SKIP() << reason;
    const int device = gpu_of(detect_launch(process_environment()), Backend::kShare);
    values().device = at::Device(at::kCUDA, static_cast<at::DeviceIndex>(device));
    if (!GpuWorld::comm()) GpuWorld::comm() = Backend::make(device);
  }
  // Waits, because operations that a test dropped on purpose may still use its memory.
  void TearDown() override {
    if (!GpuWorld::comm()) return;
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  static Communicator& comm() { return *GpuWorld::comm(); }
  static std::int64_t rank() { return to_int(comm().rank()); }
  static std::int64_t world() { return to_int(comm().size()); }
};

/// The Backend whose ranks have a GPU each, over NCCL.
struct Nccl {
  static constexpr bool kShare = false;
  static std::unique_ptr<Communicator> make(int device) {
    values().any_order = true;
    return NcclCommunicator::make(mpi().world(), {.device = device,
                                                  .limit = std::chrono::seconds(30),
                                                  .trace = std::make_shared<std::atomic<bool>>(true)});
  }
};

inline at::TensorOptions f32_on_gpu() {
  return at::TensorOptions().dtype(at::kFloat).device(values().device);
}

/// A tensor in a window of its own, not initialised. Collective.
inline at::Tensor in_window(Communicator& comm, std::int64_t elements,
                            const at::TensorOptions& options = f32_on_gpu(),
                            WindowUse use = WindowUse::gathers) {
  std::shared_ptr<void> memory =
      comm.window(Bytes(elements * static_cast<std::int64_t>(options.dtype().itemsize())), use);
  void* data = memory.get();
  return at::from_blob(
      data, {elements}, [memory = std::move(memory)](void*) {}, options);
}

/// The number of nodes in a captured graph that run on multiprocessors.
template <class Work>
std::int64_t kernels_of(const Work& work) {
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  work();
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  std::size_t count = 0;
  EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &count), cudaSuccess);
  std::vector<cudaGraphNode_t> nodes(count);
  EXPECT_EQ(cudaGraphGetNodes(graph, nodes.data(), &count), cudaSuccess);
  const auto kernels = std::count_if(nodes.begin(), nodes.end(), [](cudaGraphNode_t node) {
    cudaGraphNodeType type{};
    return cudaGraphNodeGetType(node, &type) == cudaSuccess && type == cudaGraphNodeTypeKernel;
  });
  (void)cudaGetLastError();  // the runtime has no name for nodes of cuStreamBatchMemOp
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  return kernels;
}

}  // namespace sc::test
