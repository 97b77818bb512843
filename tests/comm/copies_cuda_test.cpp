// Tests copies between a GPU and pinned memory, and pinned memory itself.
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "common/comm/copies/recording_copies.h"
#include "common/comm/local_communicator.h"
#include "common/comm/nccl/nccl_events.h"
#include "common/comm/recording_communicator.h"
#include "common/memory/ledger.h"
#include "tests/support/gpu.h"

namespace sc {
namespace {

class GpuCopies : public test::GpuTest {
 protected:
  Ledger ledger_{at::Device(at::kCUDA, 0)};
  at::Tensor pinned(std::int64_t n) {
    return ledger_.allocate(Purpose::gradients, "p", {n}, DType::f32, Place::pinned);
  }
};

cudaMemoryType memory_type(const at::Tensor& t) {
  cudaPointerAttributes attributes{};
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, t.const_data_ptr()), cudaSuccess);
  return attributes.type;
}

// One element above a power of two costs one element: LibTorch's pinned blocks would be rounded up to twice
// as much.
TEST_F(GpuCopies, PinnedMemoryCostsWhatWasAsked) {
  const std::int64_t n = (std::int64_t{1} << 22) + 1;
  at::Tensor p = pinned(n);
  EXPECT_EQ(memory_type(p), cudaMemoryTypeHost);
  EXPECT_EQ(ledger_.live(Purpose::gradients, Place::pinned), Bytes(4 * n));
  EXPECT_EQ(ledger_.live_total(), Bytes(0));
  EXPECT_EQ(p.sum().item<float>(), 0.0F);
  p = at::Tensor();
  EXPECT_EQ(ledger_.live(Purpose::gradients, Place::pinned), Bytes(0));
  at::Tensor plain = ledger_.allocate(Purpose::momentum, "h", {n}, DType::f32, Place::host);
  EXPECT_EQ(memory_type(plain), cudaMemoryTypeUnregistered);
}

// Only wait_on_host makes the host wait here, so a missing edge between streams gives wrong numbers.
TEST_F(GpuCopies, FollowTheCallersStreamAndAreWaitedForOnIt) {
  const std::unique_ptr<Communicator> alone = LocalWorld(1).communicator(Rank{0});
  RecordingCommunicator comm(*alone);
  RecordingCopies copies(make_gpu_copies(), comm.shared_record());
  comm.set_phase("train");
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  const std::int64_t n = 1 << 22;
  at::Tensor host = pinned(n),
             device = at::full({n}, 0.0, at::TensorOptions().dtype(at::kFloat).device(at::kCUDA));
  for (int k = 1; k <= 20; ++k) {
    device.add_(1);
    copies.to_host(device, host).wait_on_host();
    ASSERT_EQ(host.const_data_ptr<float>()[0], static_cast<float>(2 * k - 1));
    ASSERT_EQ(host.const_data_ptr<float>()[n - 1], static_cast<float>(2 * k - 1));
    host.add_(1);
    copies.to_device(host, device).wait();
  }
  EXPECT_EQ(device.sum().item<float>(), 40.0F * static_cast<float>(n));
  EXPECT_TRUE(comm.record().outstanding().empty());
  EXPECT_EQ(copies.dropped_tickets(), 0);
}

// The GPU is busy for long: the copy waits for work issued before it, not for work issued later.
TEST_F(GpuCopies, WaitForWhatHadBeenIssuedAndForNothingElse) {
  const std::unique_ptr<Copies> copies = make_gpu_copies();
  const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool();
  const c10::cuda::CUDAStreamGuard guard(stream);
  const auto options = at::TensorOptions().dtype(at::kFloat).device(at::kCUDA);
  const at::Tensor a = at::full({4096, 4096}, 1e-3, options);
  at::Tensor device = at::full({1024}, 7.0, options), read = at::full({1024}, 0.0, options),
             result = at::full({4096, 4096}, 0.0, options);
  const auto be_busy = [&] {
    for (int k = 0; k < 100; ++k) at::mm_out(result, a, a);
  };
  at::Tensor host = pinned(1024);
  host.fill_(9);
  be_busy();
  read.copy_(device);
  const Copies::After before = copies->issued();
  be_busy();
  const CudaEvent later = make_event();
  ASSERT_EQ(cudaEventRecord(later.get(), stream.stream()), cudaSuccess);
  copies->to_device(host, device, {}, {}, before).wait_on_host();
  EXPECT_EQ(cudaEventQuery(later.get()), cudaErrorNotReady);
  stream.synchronize();
  EXPECT_EQ(read.sum().item<float>(), 7.0F * 1024);
  EXPECT_EQ(device.sum().item<float>(), 9.0F * 1024);
}

}  // namespace
}  // namespace sc
