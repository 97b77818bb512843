// Times that a GPU measures: when it came past a point of a stream. No CUDA in here; a build without GPU code
// has the same functions, which refuse.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

namespace sc {

/// A point of a stream: a CUDA event with timing. Recorded in a capture it is a node of the graph (an
/// external event), and every launch of the graph comes past it anew.
class GpuMoment {
 public:
  virtual ~GpuMoment() = default;
  /// The time from `earlier`, of the same GPU, to this one; about 0.5 us exact. Empty while the GPU has not
  /// come past both. Never blocks.  Errors: DeviceError.
  [[nodiscard]] virtual std::optional<std::chrono::nanoseconds> since(const GpuMoment& earlier) const = 0;
};
using GpuMomentPtr = std::shared_ptr<const GpuMoment>;

/// One operation and the wait for it.
struct GpuTimes {
  GpuMomentPtr wait_began, wait_ended;  // on the stream that waits: right before and right after
  GpuMomentPtr began, ended;            // on the operation's own stream; null where nobody asked for them
  bool captured = false;                // they are of a graph: nothing has happened yet
};

/// A moment of the GPU that is a moment of the host, too.
struct GpuOrigin {
  GpuMomentPtr moment;
  std::chrono::steady_clock::time_point at;
  /// Empty while the GPU has not come past it.
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> on_host(const GpuMoment& passed) const {
    const std::optional<std::chrono::nanoseconds> since = passed.since(*moment);
    if (!since) return std::nullopt;
    return at + *since;
  }
};

/// The point that the current stream of the current GPU has been given work up to.
GpuMomentPtr gpu_moment();
/// The same, waited for. Exact to half the time that took, some 10 us if the stream was idle.
GpuOrigin gpu_origin();

}  // namespace sc
