// The sizes and the places of one rank's window, from the shape and the settings alone. No torch.
#pragma once

#include <algorithm>

#include "common/offload/host_plan.h"
#include "common/strategy/state_plan.h"
#include "infinity_plan.h"

namespace sc {

/// The bytes of a piece's extent on the disk: three fp32 vectors, rounded up to kBlockAlign.
inline Bytes extent_of(std::int64_t elements) { return Bytes(round_up(12 * elements, kBlockAlign)); }

inline bool keeps_gradients(const InfinityOptions& options) { return options.grads_at == GradsAt::device; }
/// How many versions of this rank's slice of the parameters are kept: a delayed update makes a new one while
/// the old one is gathered.
inline std::int64_t versions_of(const InfinityOptions& options) {
  return options.update == UpdateKind::delayed && options.params_at != ParamsAt::device ? 2 : 1;
}
/// How many of these versions lie in the host's memory outside the window, and how many on the disk.
inline std::int64_t params_on_host(const InfinityOptions& options) {
  if (options.params_at == ParamsAt::host) return versions_of(options);
  return options.params_at == ParamsAt::device && options.update == UpdateKind::delayed ? 1 : 0;
}
inline std::int64_t params_on_disk(const InfinityOptions& options) {
  return options.params_at == ParamsAt::disk ? versions_of(options) : 0;
}
inline Keeps kept_by(const InfinityOptions& options) {
  return {.gradients = keeps_gradients(options), .parameters = options.params_at == ParamsAt::device};
}

struct WindowPlan {
  /// Counts pieces by their sizes, since a model may have millions of them.
  WindowPlan(const RunShape& shape, const InfinityOptions& options) : dtype(shape.workload.precision.dtype) {
    const ParamLayout layout = layout_of(shape);
    std::int64_t count = 0;
    const auto pieces = [&](std::int64_t size, std::int64_t of_them) {
      if (size * of_them == 0) return;
      largest = std::max(largest, size), count += of_them;
      file += of_them * (extent_of(size) + params_extent(size) * params_on_disk(options));
    };
    for (int unit = static_cast<int>(options.resident); unit < layout.num_units(); ++unit) {
      // cut_pieces cuts a slice like this: whole pieces, then what is left.
      const std::int64_t n = layout.slice(unit, Segment::sharded, shape.rank).size();
      pieces(options.piece, n / options.piece);
      pieces(n % options.piece, 1);
    }
    buffers = std::min<std::int64_t>(options.buffers, count);
    const bool rounded = shape.workload.precision.has_master(),
               from_window = params_on_host(options) == 0 && params_on_disk(options) == 0;
    to_device = rounded && from_window;
    // In fp32 an exact update's parameters are copied to the device out of the states themselves.
    states = !rounded && from_window ? Place::pinned : Place::host;
  }
  /// The bytes of the extent of a piece's parameters on the disk, rounded up to kBlockAlign.
  [[nodiscard]] Bytes params_extent(std::int64_t n) const {
    return Bytes(round_up(bytes_of(Elements(n), dtype).value(), kBlockAlign));
  }
  DType dtype;
  /// The buffers of the window, each of as many elements as the largest piece has.
  std::int64_t buffers = 0, largest = 0;
  /// Whether rounded parameters have buffers of their own on their way to the device.
  bool to_device = false;
  /// Where the window's states lie.
  Place states = Place::host;
  /// The states of all pieces, then their parameters, version by version.
  Bytes file{0};
};

}  // namespace sc
