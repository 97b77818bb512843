// The GPU of a rank as run_lesson uses it: its stream, LibTorch's allocator, a captured step. No CUDA in
// here; a build without GPU code has the same functions, which refuse.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/gpu_architectures.h"
#include "common/base/types.h"
#include "common/records/report.h"

namespace sc {

struct GpuFacts {
  std::string name;  // "NVIDIA H200"
  Bytes memory;      // of the device
  Capability capability;
  std::string cuda, driver;   // "13.0"
  std::string cudnn, cublas;  // versions
};

/// From construction to destruction the calling thread computes on this GPU, on a stream of its own.
///   Allocator  expandable segments (unless the user has set PYTORCH_CUDA_ALLOC_CONF): blocks are cut to 512
///              bytes, so what is asked for is what is taken.
///   Errors     InputError 69 without GPU code, or for a GPU that this build has no kernels for; DeviceError.
class Gpu {
 public:
  explicit Gpu(int index);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  [[nodiscard]] at::Device device() const;
  [[nodiscard]] GpuFacts facts() const;

  /// LibTorch's allocator: the highest number of bytes handed out since reset_peak().
  [[nodiscard]] Bytes peak() const;
  void reset_peak();
  /// How many times it has handed something out since the process began.
  [[nodiscard]] std::int64_t allocations() const;
  /// Of what it hands out, cuBLAS's workspaces, each with its name: as large as LibTorch is set to make them.
  [[nodiscard]] std::vector<AllocatorCheck::Part> constants() const;
  /// Of what it hands out, the scratch of our kernels (memory/stream_scratch.h), as it is now.
  [[nodiscard]] Bytes scratch() const;
  /// What nobody uses on the device.
  [[nodiscard]] Bytes free() const;
  /// Notes, under `name`, what has come into use on the device since the last note beside LibTorch's
  /// allocator and `known` bytes (windows): on behalf of anybody, so that what other processes take or give
  /// back meanwhile is in it. The first note has everything.
  void note_beside_allocator(const std::string& name, Bytes known = Bytes(0));
  [[nodiscard]] const std::vector<AllocatorCheck::Part>& beside_allocator() const;

  /// Captures what `step` enqueues on the current stream, instead of running it. Once.
  void capture(const std::function<void()>& step);
  [[nodiscard]] bool captured() const;
  /// Of the last one that was captured; empty: none was.
  [[nodiscard]] std::optional<GraphNodes> graph_nodes() const;
  /// Forgets it. The communicators whose operations it holds end after this.
  void drop_graph() noexcept;
  /// Enqueues it again.
  void replay();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Whether this build has GPU code and this machine a GPU that it can use.
bool gpu_available();

}  // namespace sc
