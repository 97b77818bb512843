#include "common/memory/stream_scratch.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace sc {
namespace {

struct Scratch {
  std::vector<at::Tensor>
      buffers;  // the last is the largest; earlier ones stay, since captured graphs may hold their addresses
  at::Tensor counters;
};

// Process-wide because streams are too. Never destroyed: at exit the allocator may be gone already.
struct Registry {
  std::mutex mutex;
  // The key holds the device too, because the default stream of every device is 0.
  std::map<std::pair<int, cudaStream_t>, Scratch> streams;

  Scratch& current() {
    const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream();
    return streams[{stream.device_index(), stream.stream()}];
  }
};
Registry& registry() {
  static auto* instance = new Registry;
  return *instance;
}

at::TensorOptions on_current_device(at::ScalarType type) {
  return at::TensorOptions().device(at::kCUDA, c10::cuda::current_device()).dtype(type);
}

}  // namespace

void* stream_scratch(std::int64_t bytes) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::vector<at::Tensor>& buffers = all.current().buffers;
  if (buffers.empty() || buffers.back().numel() < bytes) {
    const c10::InferenceMode guard;
    buffers.push_back(at::empty({std::max(bytes, kStreamScratch.value())}, on_current_device(at::kByte)));
  }
  return buffers.back().mutable_data_ptr();
}

unsigned* stream_counters() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  at::Tensor& counters = all.current().counters;
  if (!counters.defined()) {
    const c10::InferenceMode guard;
    counters = at::zeros({kStreamCounters}, on_current_device(at::kInt));
  }
  return static_cast<unsigned*>(counters.mutable_data_ptr());
}

Bytes stream_scratch_bytes() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::int64_t bytes = 0;
  for (const auto& [stream, scratch] : all.streams) {
    for (const at::Tensor& buffer : scratch.buffers) bytes += static_cast<std::int64_t>(buffer.nbytes());
    if (scratch.counters.defined()) bytes += static_cast<std::int64_t>(scratch.counters.nbytes());
  }
  return Bytes(bytes);
}

}  // namespace sc
