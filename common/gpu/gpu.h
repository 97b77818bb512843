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

/// While it exists, the calling thread computes on one GPU, on a stream of its own.
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

  /// The most bytes that LibTorch's allocator has handed out at once since reset_peak().
  [[nodiscard]] virtual Bytes peak() const = 0;
  virtual void reset_peak() = 0;
  [[nodiscard]] virtual std::int64_t allocations() const = 0;
  /// The allocator's constant bytes by name: cuBLAS's workspaces of so many threads, sized by LibTorch's
  /// settings.
  [[nodiscard]] virtual std::vector<AllocatorCheck::Part> constants(std::int64_t threads) const = 0;
  /// The allocator's bytes that are now scratch of our kernels (memory/stream_scratch.h).
  [[nodiscard]] virtual Bytes scratch() const = 0;
  [[nodiscard]] virtual Bytes free() const = 0;
  /// Records under `name` by how much device memory outside LibTorch's allocator and `known` bytes (windows)
  /// has grown since the last call; the first call records all of it. Other processes' count too.
  virtual void note_beside_allocator(const std::string& name, Bytes known = Bytes(0)) = 0;
  [[nodiscard]] virtual const std::vector<AllocatorCheck::Part>& beside_allocator() const = 0;

  /// Captures the work that `step` enqueues on the current stream, which then does not run. Call it once.
  virtual void capture(const std::function<void()>& step) = 0;
  [[nodiscard]] virtual bool captured() const = 0;
  /// The number of nodes of the captured graph by kind; nullopt if there is no graph.
  [[nodiscard]] virtual std::optional<GraphNodes> graph_nodes() const = 0;
  /// Destroys the graph. Communicators whose operations it holds must be destroyed after it.
  virtual void drop_graph() noexcept = 0;
  virtual void replay() = 0;
};

/// Makes GPU number `index` this thread's.
///   Errors  InputError 69 without GPU code, or for a GPU that this build has no kernels for; DeviceError.
std::unique_ptr<Gpu> take_gpu(int index);

bool gpu_available();

}  // namespace sc
