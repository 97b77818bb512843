// Where every named tensor lives inside its unit's flat vectors. No torch: plans and checkpoints read it too.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/range.h"
#include "common/base/types.h"
#include "common/config/workload.h"

namespace sc {

/// The number of elements of which a multiple precedes every tensor; slices are multiples of it too.
inline constexpr std::int64_t kAlign = 64;

enum class Segment : std::uint8_t { sharded, whole };

/// The tensor rank whose part of every cut matrix a layout describes. With one rank nothing is cut.
struct TensorCut {
  int rank = 0, ranks = 1;
  bool operator==(const TensorCut&) const = default;
  /// This rank's part of `size` elements, cut at multiples of `granule`, which divides `size`.
  [[nodiscard]] Range part(std::int64_t size, std::int64_t granule) const;
};

struct ParamTensor {
  std::string name;  // Hugging Face's: "h.0.attn.c_attn.weight"; untied head: "lm_head.weight"
  // The shape here: matrices [out, in] (transposed from Hugging Face's Conv1D), wte [V_pad, d].
  std::vector<std::int64_t> shape;
  Segment segment = Segment::sharded;
  std::int64_t offset = 0;  // elements from the start of the unit's segment
  bool decay = false;       // weight decay applies (matrices, embeddings included)
  /// The whole tensor, viewed as [outer, split, inner]; this rank has `part` of the split dimension.
  struct Whole {
    std::vector<std::int64_t> shape;
    std::int64_t outer = 1, split = 1, inner = 1;
    Range part;
    [[nodiscard]] std::int64_t numel() const { return outer * split * inner; }
  } whole;
  [[nodiscard]] std::int64_t numel() const { return whole.outer * run(); }
  /// The number of elements that are contiguous both here and in the whole tensor.
  [[nodiscard]] std::int64_t run() const { return whole.part.size() * whole.inner; }
  [[nodiscard]] bool is_cut() const { return whole.part.size() < whole.split; }
  /// Whether this is some columns of a matrix, so that a contiguous run is a part of a row.
  [[nodiscard]] bool is_columns() const { return is_cut() && whole.inner == 1 && shape.size() == 2; }
};

/// Splits `range` into pieces that are contiguous both here and in the whole tensor, and calls f(piece here,
/// where it begins in the whole tensor) for each, in order.
template <class F>
void for_each_run(const ParamTensor& tensor, Range range, F&& f) {
  const ParamTensor::Whole& whole = tensor.whole;
  const std::int64_t run = tensor.run();
  for (std::int64_t at = range.begin; at < range.end;) {
    const std::int64_t next = at / run * run + run, end = next < range.end ? next : range.end;
    f(Range{at, end}, (at / run * whole.split + whole.part.begin) * whole.inner + at % run);
    at = end;
  }
}

/// One unit: its tensors in order, and each segment's padded length, a multiple of world * kAlign (0 for an
/// empty one).
struct UnitLayout {
  std::vector<ParamTensor> tensors;
  std::int64_t sharded_size = 0, whole_size = 0;  // padded
  // The elements before this unit's segments in the arenas, each of all units' segments of one kind.
  std::int64_t sharded_begin = 0, whole_begin = 0;
  [[nodiscard]] std::int64_t size(Segment s) const {
    return s == Segment::sharded ? sharded_size : whole_size;
  }
  [[nodiscard]] std::int64_t begin(Segment s) const {
    return s == Segment::sharded ? sharded_begin : whole_begin;
  }
  /// The number of elements of the unit's tensors, without the padding between them.
  [[nodiscard]] std::int64_t numel() const {
    std::int64_t sum = 0;
    for (const ParamTensor& tensor : tensors) sum += tensor.numel();
    return sum;
  }
};

/// The flat layout of a model for `world` slices, as ZeRO's flat buffers (arXiv:1910.02054 section 5). With a
/// tensor cut it is the layout of one tensor rank: the sharded segment has what the rank has a part of (heads
/// of attention, columns of the MLP, rows of the vocabulary), the whole segment what every tensor rank has
/// (norms, the biases of c_proj, wpe). Cuts may be uneven. Source: arXiv:1909.08053 section 3.
class ParamLayout {
 public:
  /// Puts tensors of fewer than `persist_below` elements, without padding, into the whole segment; 0: none.
  ///   Errors  InputError (exit 64) for a model without a layout, or fewer heads than tensor ranks.
  ParamLayout(const GptConfig& config, WorldSize world, std::int64_t persist_below = 0)
      : ParamLayout(config, world, persist_below, {}) {}
  ParamLayout(const GptConfig& config, WorldSize world, const TensorCut& cut)
      : ParamLayout(config, world, 0, cut) {}

  [[nodiscard]] const GptConfig& config() const { return config_; }
  [[nodiscard]] WorldSize world() const { return world_; }
  [[nodiscard]] int num_units() const { return static_cast<int>(units_->size()); }  // L + 2
  [[nodiscard]] int num_blocks() const { return num_units() - 2; }
  [[nodiscard]] int last_unit() const { return num_units() - 1; }
  [[nodiscard]] const UnitLayout& unit(int unit) const { return (*units_)[static_cast<std::size_t>(unit)]; }
  /// A unit's tensor by its name; null if there is none.
  [[nodiscard]] const ParamTensor* find(int unit, std::string_view name) const;

  /// The length of an arena: elements of all units' segments of one kind, with padding.
  [[nodiscard]] Elements arena_size(Segment segment) const;
  [[nodiscard]] Elements arena_size() const {
    return arena_size(Segment::sharded) + arena_size(Segment::whole);
  }
  /// The number of parameters without padding, as GPT-2's published counts have it (wte with `vocab` rows).
  [[nodiscard]] Elements parameters() const;

  [[nodiscard]] const TensorCut& cut() const { return cut_; }
  /// What this rank has of the model: heads of attention, columns of the MLP, rows of the padded vocabulary.
  [[nodiscard]] Range heads() const;
  [[nodiscard]] Range hidden() const;
  [[nodiscard]] Range vocab_rows() const;
  /// The same layout without its tensor cut: where whole tensors lie.
  [[nodiscard]] ParamLayout whole() const { return {config_, world_, persist_below_}; }

  /// The slice of one rank in a unit's segment, relative to the segment's start.
  [[nodiscard]] Range slice(int unit, Segment segment, Rank rank) const;
  /// The ascending, disjoint parts of `range` of a unit's segment to which weight decay applies, relative to
  /// range.begin, as adamw_step needs them.
  [[nodiscard]] std::vector<Range> decay_ranges(int unit, Segment segment, Range range) const;

 private:
  ParamLayout(const GptConfig& config, WorldSize world, std::int64_t persist_below, const TensorCut& cut);

  GptConfig config_;
  WorldSize world_;
  std::int64_t persist_below_;
  TensorCut cut_;
  std::shared_ptr<const std::vector<UnitLayout>> units_;  // shared by copies of the layout
};

}  // namespace sc
