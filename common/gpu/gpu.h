// The GPU of a rank as run_lesson uses it: its stream, LibTorch's allocator, a captured step. No CUDA in
// here; a build without GPU code refuses to take one.
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
///   Errors     DeviceError
class Gpu {
 public:
  Gpu() = default;
  virtual ~Gpu() = default;
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  [[nodiscard]] virtual at::Device device() const = 0;
  [[nodiscard]] virtual GpuFacts facts() const = 0;

  /// LibTorch's allocator: the highest number of bytes handed out since reset_peak().
  [[nodiscard]] virtual Bytes peak() const = 0;
  virtual void reset_peak() = 0;
  /// How many times it has handed something out since the process began.
  [[nodiscard]] virtual std::int64_t allocations() const = 0;
  /// Of what it hands out, cuBLAS's workspaces, each with its name: as large as LibTorch is set to make them.
  [[nodiscard]] virtual std::vector<AllocatorCheck::Part> constants() const = 0;
  /// Of what it hands out, the scratch of our kernels (memory/stream_scratch.h), as it is now.
  [[nodiscard]] virtual Bytes scratch() const = 0;
  /// What nobody uses on the device.
  [[nodiscard]] virtual Bytes free() const = 0;
  /// Notes, under `name`, what has come into use on the device since the last note beside LibTorch's
  /// allocator and `known` bytes (windows): on behalf of anybody, so that what other processes take or give
  /// back meanwhile is in it. The first note has everything.
  virtual void note_beside_allocator(const std::string& name, Bytes known = Bytes(0)) = 0;
  [[nodiscard]] virtual const std::vector<AllocatorCheck::Part>& beside_allocator() const = 0;

  /// Captures what `step` enqueues on the current stream, instead of running it. Once.
  virtual void capture(const std::function<void()>& step) = 0;
  [[nodiscard]] virtual bool captured() const = 0;
  /// Of the last one that was captured; empty: none was.
  [[nodiscard]] virtual std::optional<GraphNodes> graph_nodes() const = 0;
  /// Forgets it. The communicators whose operations it holds end after this.
  virtual void drop_graph() noexcept = 0;
  /// Enqueues it again.
  virtual void replay() = 0;
};

/// The GPU of that number.
///   Errors  InputError 69 without GPU code, or for a GPU that this build has no kernels for; DeviceError.
std::unique_ptr<Gpu> take_gpu(int index);

/// Whether this build has GPU code and this machine a GPU that it can use.
bool gpu_available();

}  // namespace sc
