// The GPU of a rank as run_lesson uses it: its stream, LibTorch's allocator, a captured step. Does not
// include CUDA; a build without GPU code refuses to take a GPU.
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
  std::string name;  // e.g. "NVIDIA H200"
  Bytes memory;      // memory of the device
  Capability capability;
  std::string cuda, driver;   // e.g. "13.0"
  std::string cudnn, cublas;  // library versions
};

/// While it exists, the calling thread computes on this GPU, on a stream of its own.
///   Allocator  expandable segments (unless the user has set PYTORCH_CUDA_ALLOC_CONF): blocks are cut to 512
///              bytes, so that nothing is allocated beyond what was asked for.
///   Errors     DeviceError
class Gpu {
 public:
  Gpu() = default;
  virtual ~Gpu() = default;
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  [[nodiscard]] virtual at::Device device() const = 0;
  [[nodiscard]] virtual GpuFacts facts() const = 0;

  /// The highest number of bytes handed out by LibTorch's allocator since reset_peak().
  [[nodiscard]] virtual Bytes peak() const = 0;
  virtual void reset_peak() = 0;
  /// The number of allocations by LibTorch's allocator since the process began.
  [[nodiscard]] virtual std::int64_t allocations() const = 0;
  /// The parts of the allocator's bytes that are constants of the run: cuBLAS's workspaces, as large as
  /// LibTorch is set to make them, each with its name.
  [[nodiscard]] virtual std::vector<AllocatorCheck::Part> constants() const = 0;
  /// The part of the allocator's bytes that is scratch of our kernels (memory/stream_scratch.h), as it is
  /// now.
  [[nodiscard]] virtual Bytes scratch() const = 0;
  [[nodiscard]] virtual Bytes free() const = 0;
  /// Records, under `name`, how much more of the device is in use than at the last call, beyond LibTorch's
  /// allocator and `known` bytes (windows). This includes what other processes took or gave back in the
  /// meantime. The first call records everything.
  virtual void note_beside_allocator(const std::string& name, Bytes known = Bytes(0)) = 0;
  [[nodiscard]] virtual const std::vector<AllocatorCheck::Part>& beside_allocator() const = 0;

  /// Captures the work that `step` enqueues on the current stream instead of running it. Call it once.
  virtual void capture(const std::function<void()>& step) = 0;
  [[nodiscard]] virtual bool captured() const = 0;
  /// Nodes of the captured graph; empty if there is none.
  [[nodiscard]] virtual std::optional<GraphNodes> graph_nodes() const = 0;
  /// Destroys the graph. Communicators whose operations it holds must be destroyed after it.
  virtual void drop_graph() noexcept = 0;
  /// Enqueues the captured work again.
  virtual void replay() = 0;
};

/// Takes the GPU with that number.
///   Errors  InputError 69 without GPU code, or for a GPU that this build has no kernels for; DeviceError.
std::unique_ptr<Gpu> take_gpu(int index);

/// Whether this build has GPU code and this machine a usable GPU.
bool gpu_available();

}  // namespace sc
