// What the window is made of, for one rank: from the shape and the settings alone. No torch.
#pragma once

#include <algorithm>
#include <vector>

#include "common/offload/host_plan.h"
#include "infinity_plan.h"

namespace sc {

/// Bytes of a piece's extent: three vectors, up to kBlockAlign.
inline Bytes extent_of(std::int64_t elements) { return Bytes(round_up(12 * elements, kBlockAlign)); }

inline bool keeps_gradients(const InfinityOptions& options) { return options.grads_at == GradsAt::device; }
/// How often this rank's slice of the parameters is kept: a delayed update makes new ones while the old ones
/// are gathered.
inline std::int64_t versions_of(const InfinityOptions& options) {
  return options.update == UpdateKind::delayed && options.params_at != ParamsAt::device ? 2 : 1;
}
/// So many slices of them lie in the host's memory, beside the window.
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

/// So many pieces of one size.
struct PieceRun {
  std::int64_t size, count;
};

struct WindowPlan {
  /// Sizes alone, without `extents`: a plan of a model that has millions of pieces.
  WindowPlan(const std::vector<PieceRun>& runs, const RunShape& shape, const InfinityOptions& options)
      : WindowPlan(std::vector<Piece>(), shape, options) {
    std::int64_t count = 0;
    for (const PieceRun& run : runs) {
      largest = std::max(largest, run.size), count += run.count;
      file = file + run.count * (extent_of(run.size) + params_extent(run.size) * params_on_disk(options));
    }
    buffers = std::min<std::int64_t>(options.buffers, count);
  }
  WindowPlan(const std::vector<Piece>& pieces, const RunShape& shape, const InfinityOptions& options)
      : buffers(std::min<std::int64_t>(options.buffers, static_cast<std::int64_t>(pieces.size()))),
        dtype(shape.workload.precision.dtype) {
    for (const Piece& piece : pieces) {
      largest = std::max(largest, piece.range.size());
      extents.push_back(extent_of(piece.range.size()));
      file = file + extents.back();
    }
    for (std::int64_t version = 0; version < params_on_disk(options); ++version) {
      for (const Piece& piece : pieces) {
        extents.push_back(params_extent(piece.range.size()));
        file = file + extents.back();
      }
    }
    const bool rounded = shape.workload.precision.has_master(),
               from_window = params_on_host(options) == 0 && params_on_disk(options) == 0;
    to_device = rounded && from_window;
    // In fp32 an exact update's parameters are copied to the device out of the states themselves.
    states = !rounded && from_window ? Place::pinned : Place::host;
  }
  /// Of a piece's parameters, up to whole blocks.
  [[nodiscard]] Bytes params_extent(std::int64_t n) const {
    return Bytes(round_up(bytes_of(Elements(n), dtype).value(), kBlockAlign));
  }
  std::int64_t buffers, largest = 0;
  DType dtype;                 // of parameters
  bool to_device;              // rounded parameters have buffers of their own on their way to the device
  Place states;                // of the window
  std::vector<Bytes> extents;  // of the file: states of all pieces, then their parameters, version by version
  Bytes file{0};
};

}  // namespace sc
