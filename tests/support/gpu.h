// Shared by tests on a GPU, which skip, with the reason, if there is none.
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

/// Keeps the current stream from going on until the end of the scope, and then waits for it. Inside nothing
/// may be used for the first time: CUDA loads a kernel then, and may wait for all streams.
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

/// Something that keeps the current stream busy for a while, and when it began and ended last, by a clock
/// that all processes of a host share. Can be captured; outlives its graph.
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

/// A GPU's times are exact to this.
inline constexpr std::chrono::microseconds kGpuResolution(10);

inline at::TensorOptions on_gpu(at::ScalarType type) {
  return at::TensorOptions().device(at::kCUDA).dtype(type);
}
inline at::Tensor random(at::IntArrayRef shape, at::ScalarType type) {
  return at::randn(shape, on_gpu(at::kFloat)).to(type);
}
/// Poison shows elements that a function does not write.
inline at::Tensor poison(at::IntArrayRef shape, at::ScalarType type) {
  return at::full(shape, std::numeric_limits<double>::quiet_NaN(), on_gpu(type));
}
inline at::Tensor f32(const at::Tensor& t) { return t.to(at::kFloat); }

/// max |a - b| / max |b|, or max |a| where b is all zeros; NaN where either has one.
inline double relative_error(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  if (y.count_nonzero().item<std::int64_t>() == 0) return x.abs().max().item<double>();
  return ((x - y).abs().max() / y.abs().max()).item<double>();
}
/// sqrt(sum (a - b)^2 / sum b^2).
inline double relative_l2(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  return ((x - y).norm() / y.norm()).item<double>();
}

/// Half a unit in the last place of the largest number: what rounding the result once may cost; twice that
/// where the operation reads a rounded value again. fp32: a few roundings of sums over a row.
inline double rounding(at::ScalarType type) {
  return type == at::kBFloat16 ? 1.0 / 256 : type == at::kHalf ? 1.0 / 2048 : 4e-6;
}

/// Tensors that LibTorch's allocator has handed out since the process began.
inline std::int64_t allocations() {
  return c10::cuda::CUDACachingAllocator::getDeviceStats(c10::cuda::current_device()).allocation[0].allocated;
}

/// Runs `work` in a captured graph, after two eager runs on the same stream, `replays` times.
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
