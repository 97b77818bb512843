// Tools for tests on a GPU, which are skipped, with a reason, on machines without one.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/count_nonzero.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <semaphore>
#include <thread>

namespace sc::test {

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    const cudaError_t status = cudaGetDeviceCount(&devices);
    if (status != cudaSuccess || devices == 0) {
      GTEST_SKIP() << "needs a GPU: " << (status == cudaSuccess ? "none found" : cudaGetErrorString(status));
    }
    set_up();
  }
  virtual void set_up() {}
  const c10::InferenceMode inference_;
};

/// Holds the current stream back until the end of the scope, and then waits for the stream. Inside the scope
/// no kernel may run for the first time: CUDA would load it, and may wait for all streams to do so.
class HeldStream {
 public:
  HeldStream() {
    const auto wait = [](void* gate) { static_cast<std::binary_semaphore*>(gate)->acquire(); };
    EXPECT_EQ(cudaLaunchHostFunc(c10::cuda::getCurrentCUDAStream(), wait, &gate_), cudaSuccess);
  }
  ~HeldStream() {
    gate_.release();
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  HeldStream(const HeldStream&) = delete;
  HeldStream& operator=(const HeldStream&) = delete;

 private:
  std::binary_semaphore gate_{0};
};

/// Keeps the current stream busy for a while and notes when it last began and ended, by the host's steady
/// clock, which all processes share. Can be captured in a graph, and must outlive it.
class BusyWork {
 public:
  using Clock = std::chrono::steady_clock;
  void enqueue() {
    const auto work = [](void* self) {
      auto& busy = *static_cast<BusyWork*>(self);
      busy.began_ = Clock::now();
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      busy.ended_ = Clock::now();
    };
    ASSERT_EQ(cudaLaunchHostFunc(c10::cuda::getCurrentCUDAStream(), work, this), cudaSuccess);
  }
  [[nodiscard]] bool has_ended() const { return ended() != Clock::time_point(); }
  [[nodiscard]] Clock::time_point began() const { return began_; }
  [[nodiscard]] Clock::time_point ended() const { return ended_; }

 private:
  std::atomic<Clock::time_point> began_{}, ended_{};
};

/// Tests allow this error in times measured on a GPU.
inline constexpr std::chrono::microseconds kGpuResolution(10);

inline at::TensorOptions on_gpu(at::ScalarType type) {
  return at::TensorOptions().device(at::kCUDA).dtype(type);
}
inline at::Tensor random(at::IntArrayRef shape, at::ScalarType type) {
  return at::randn(shape, on_gpu(at::kFloat)).to(type);
}
/// A tensor of NaN, in which elements that a function fails to write stand out.
inline at::Tensor poison(at::IntArrayRef shape, at::ScalarType type) {
  return at::full(shape, std::numeric_limits<double>::quiet_NaN(), on_gpu(type));
}
inline at::Tensor f32(const at::Tensor& t) { return t.to(at::kFloat); }

/// max |a - b| / max |b|; max |a| if b is all zeros; NaN if a or b contains one.
inline double relative_error(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  if (y.count_nonzero().item<std::int64_t>() == 0) return x.abs().max().item<double>();
  return ((x - y).abs().max() / y.abs().max()).item<double>();
}
/// The relative error in the L2 norm, sqrt(sum (a - b)^2 / sum b^2).
inline double relative_l2(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  return ((x - y).norm() / y.norm()).item<double>();
}

/// The relative error that one rounding of a result to `type` may cause; an operation that reads a rounded
/// value again may have twice as much. For fp32: a few roundings of sums over a row.
inline double rounding(at::ScalarType type) {
  return type == at::kBFloat16 ? 1.0 / 256 : type == at::kHalf ? 1.0 / 2048 : 4e-6;
}

/// The number of tensors that LibTorch's CUDA allocator has allocated since the process began.
inline std::int64_t allocations() {
  return c10::cuda::CUDACachingAllocator::getDeviceStats(c10::cuda::current_device()).allocation[0].allocated;
}

/// Runs `work` twice eagerly on a stream, then captures it in a graph and replays the graph `replays` times.
inline void replay(const std::function<void()>& work, int replays) {
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool(/*isHighPriority=*/true));
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);  // what the caller's stream still reads
  work();
  work();
  at::cuda::CUDAGraph graph;
  graph.capture_begin();
  work();
  graph.capture_end();
  for (int i = 0; i < replays; ++i) graph.replay();
  c10::cuda::getCurrentCUDAStream().synchronize();
}

}  // namespace sc::test
