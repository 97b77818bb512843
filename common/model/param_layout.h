// Where every named tensor lives inside its unit's flat vectors. No torch: plans and checkpoints read it too.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/range.h"
#include "common/base/types.h"
#include "common/config/workload.h"

namespace sc {

/// Every tensor starts at a multiple of this many elements; slices are multiples of it too.
inline constexpr std::int64_t kAlign = 64;

enum class Segment : std::uint8_t { sharded, whole };

struct ParamTensor {
  std::string name;  // Hugging Face's: "h.0.attn.c_attn.weight"; untied head: "lm_head.weight"
  std::vector<std::int64_t>
      shape;  // as stored here: matrices [out, in] (Hugging Face's Conv1D transposed), wte [V_pad, d]
  Segment segment = Segment::sharded;
  std::int64_t offset = 0;  // elements from the start of the unit's segment
  bool decay = false;       // weight decay applies (matrices, embeddings included)
  [[nodiscard]] std::int64_t numel() const;
};

/// One unit: its tensors in order, and the padded length of each segment (a multiple of world * kAlign; whole
/// may be 0).
struct UnitLayout {
  std::vector<ParamTensor> tensors;
  std::int64_t sharded_size = 0, whole_size = 0;  // padded
  std::int64_t sharded_begin = 0,
               whole_begin = 0;  // where the segment starts in the arena of all units' segments of that kind
  [[nodiscard]] std::int64_t size(Segment s) const {
    return s == Segment::sharded ? sharded_size : whole_size;
  }
  [[nodiscard]] std::int64_t begin(Segment s) const {
    return s == Segment::sharded ? sharded_begin : whole_begin;
  }
};

/// The flat layout of a whole model for `world` slices.  Source: design of ZeRO's flat buffers,
/// arXiv:1910.02054 section 5.
class ParamLayout {
 public:
  /// persist_below: tensors with fewer elements (before padding) go to the whole segment; 0 = none.
  ParamLayout(const GptConfig& config, WorldSize world, std::int64_t persist_below = 0);

  [[nodiscard]] const GptConfig& config() const { return config_; }
  [[nodiscard]] WorldSize world() const { return world_; }
  [[nodiscard]] int num_units() const { return static_cast<int>(units_.size()); }  // L + 2
  [[nodiscard]] int num_blocks() const { return num_units() - 2; }
  [[nodiscard]] int last_unit() const { return num_units() - 1; }
  [[nodiscard]] const UnitLayout& unit(int unit) const { return units_[static_cast<std::size_t>(unit)]; }
  /// Null if there is no such tensor.
  [[nodiscard]] const ParamTensor* find(int unit, std::string_view name) const;

  /// Elements of all units' segments of one kind, padded: the length of an arena.
  [[nodiscard]] Elements arena_size(Segment segment) const;
  [[nodiscard]] Elements arena_size() const {
    return arena_size(Segment::sharded) + arena_size(Segment::whole);
  }
  /// Real parameters, padding aside (wte counted with `vocab` rows: GPT-2's published counts).
  [[nodiscard]] Elements parameters() const;

  /// Rank r's slice of a unit's segment, relative to the segment's start.
  [[nodiscard]] Range slice(int unit, Segment segment, Rank rank) const;
  /// The parts of `range` (of the unit's segment) that weight decay applies to, relative to range.begin: what
  /// adamw_step wants for a slice. Ascending, disjoint.
  [[nodiscard]] std::vector<Range> decay_ranges(int unit, Segment segment, Range range) const;

 private:
  GptConfig config_;
  WorldSize world_;
  std::vector<UnitLayout> units_;
};

}  // namespace sc
