// Times measured by a GPU: when it passed a point of a stream. Does not include CUDA; in a build without GPU
// code the same functions refuse.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

namespace sc {

/// A point of a stream: a CUDA event with timing. Recorded in a capture it is a node of the graph (an
/// external event), and every launch of the graph passes it again.
class GpuMoment {
 public:
  virtual ~GpuMoment() = default;
  /// The time from `earlier`, on the same GPU, to this moment; exact to about 0.5 us. Empty until the GPU has
  /// passed both. Never blocks.
  ///   Errors  DeviceError.
  [[nodiscard]] virtual std::optional<std::chrono::nanoseconds> since(const GpuMoment& earlier) const = 0;
};
using GpuMomentPtr = std::shared_ptr<const GpuMoment>;

/// When an operation and the wait for it began and ended, as moments that the GPU measures.
struct GpuTimes {
  GpuMomentPtr wait_began, wait_ended;  // on the waiting stream, right before and right after the wait
  GpuMomentPtr began, ended;            // on the operation's own stream; null if not asked for
  bool captured = false;                // in a captured graph, so nothing has happened yet
};

/// A moment of the GPU whose time on the host's clock is known.
struct GpuOrigin {
  GpuMomentPtr moment;
  std::chrono::steady_clock::time_point at;
  /// A moment's time on the host's clock. Empty until the GPU has passed it.
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> on_host(const GpuMoment& passed) const {
    const std::optional<std::chrono::nanoseconds> since = passed.since(*moment);
    if (!since) return std::nullopt;
    return at + *since;
  }
};

/// Marks the point that the current stream of the current GPU has been given work up to.
GpuMomentPtr gpu_moment();
/// A moment now, and its time on the host's clock, exact to half the wait for it: some 10 us if idle.
GpuOrigin gpu_origin();

}  // namespace sc
