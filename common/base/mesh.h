// The mesh of a run: its ranks laid out along named axes. No torch.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/types.h"

namespace sc {

/// Evenly spaced ranks of the world: first, first + stride, first + 2 stride and so on.
struct RankSet {
  int first = 0, count = 0, stride = 1;  // count 0: ranks that are not evenly spaced
  [[nodiscard]] bool contains(Rank rank) const;
  [[nodiscard]] std::vector<std::int64_t> all() const;
  /// The RankSet of a communicator's members, in the order of their ranks; count 0 if unevenly spaced.
  static RankSet of(const std::vector<Rank>& members);
  bool operator==(const RankSet&) const = default;
};

/// The axes of a mesh, outermost first. Ranks that communicate most are neighbours on the innermost axis.
enum class Axis : std::uint8_t {
  stages,   // stages of a pipeline
  data,     // ranks with different micro-batches
  context,  // ranks that share the tokens of a row
  tensor    // ranks that share every matrix
};
/// How an axis is called, and how one position on it ("stages", "stage").
struct AxisName {
  Axis axis;
  std::string_view name, one;
};
inline constexpr std::array kAxes = {
    AxisName{Axis::stages, "stage", "stage"}, AxisName{Axis::data, "data", "data rank"},
    AxisName{Axis::context, "context", "context rank"}, AxisName{Axis::tensor, "tensor", "tensor rank"}};

/// Numbers the ranks along the axes, innermost first. An unnamed axis has size 1. Copyable as bytes.
class Mesh {
 public:
  struct Size {
    Axis axis;
    std::int64_t ranks;
  };
  Mesh() : Mesh(WorldSize{1}) {}
  /// Lays out `world` ranks; the data axis has as many as the named axes leave.
  explicit Mesh(WorldSize world, std::initializer_list<Size> named = {});

  [[nodiscard]] WorldSize world() const { return world_; }
  [[nodiscard]] std::int64_t size(Axis axis) const { return sizes_[static_cast<std::size_t>(axis)]; }
  /// The axes with several ranks, outermost first.
  [[nodiscard]] std::vector<Axis> axes() const;
  /// The number of ranks of one replica: the product of all axes but the data axis.
  [[nodiscard]] std::int64_t of_a_replica() const;
  /// Whether the named axes divide the world. A plan is refused if they do not.
  [[nodiscard]] bool is_whole() const { return to_int(world_) % of_a_replica() == 0; }
  /// How far apart neighbours on the axis are, in ranks of the world.
  [[nodiscard]] std::int64_t stride(Axis axis) const;
  /// The coordinate of a rank on an axis, counted from 0.
  [[nodiscard]] std::int64_t at(Axis axis, Rank rank) const {
    return to_int(rank) / stride(axis) % size(axis);
  }
  /// The rank with coordinate `to` on the axis and `rank`'s coordinates on all others.
  [[nodiscard]] Rank moved(Rank rank, Axis axis, std::int64_t to) const;
  /// The ranks that differ from `rank` on these axes alone. The axes must be adjacent in the order of Axis.
  [[nodiscard]] RankSet group(Rank rank, std::initializer_list<Axis> axes) const;
  /// The rank's coordinates as text ("stage 1, tensor rank 0"), on axes with several ranks and not in `but`.
  [[nodiscard]] std::string place(Rank rank, std::initializer_list<Axis> but = {}) const;
  /// The first rank of every group(rank, axes), one for each group.
  [[nodiscard]] std::vector<Rank> firsts(std::initializer_list<Axis> axes) const;
  bool operator==(const Mesh&) const = default;

 private:
  WorldSize world_{1};
  std::array<std::int64_t, kAxes.size()> sizes_{};
};

}  // namespace sc
