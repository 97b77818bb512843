#include "common/strategy/nonfinite.h"

#include <ATen/ops/empty.h>
#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <vector>

#include "common/base/check.h"
#include "common/base/finite.h"
#include "common/comm/gather_text.h"
#include "common/strategy/strategy.h"

namespace sc::detail {
namespace {

constexpr std::int64_t kNone = -1;

// The units in which one rank found numbers that are not finite. Backward runs from the last unit to the
// first and carries such a number along, so the largest unit is where it began.
struct Scan {
  std::int64_t own = kNone;     // the unit in which the rank's last local gradient has it
  std::int64_t summed = kNone;  // the largest unit whose summed gradient has it
};

// A tensor of the model; ordered as the model computes.
struct Found {
  std::int64_t unit = std::numeric_limits<std::int64_t>::max(), tensor = 0;
  auto operator<=>(const Found&) const = default;
  [[nodiscard]] bool none() const { return *this == Found{}; }
};

// The first of the slice's elements that is not finite, counted from the start of its unit's segment.
std::optional<std::int64_t> first_nonfinite_of(const StateSlice& slice) {
  at::Tensor values = at::empty({std::min(slice.range.size(), kStatePiece)}, at::kFloat);
  std::optional<std::int64_t> found;
  for_each_piece(slice.range, [&](Range piece) {
    if (found) return;
    at::Tensor part = values.narrow(0, 0, piece.size());
    slice.read(piece, part);
    found =
        first_nonfinite({static_cast<const std::byte*>(part.const_data_ptr()), part.nbytes()}, DType::f32);
    if (found) *found += piece.begin;
  });
  return found;
}

Scan scan_of(Strategy& strategy) {
  Scan scan;
  for (const StateSlice& slice : strategy.state()) {
    const bool local = slice.purpose == Purpose::workspace;
    if ((!local && slice.purpose != Purpose::gradients) || !first_nonfinite_of(slice)) continue;
    std::int64_t& unit = local ? scan.own : scan.summed;
    unit = std::max<std::int64_t>(unit, slice.unit);
  }
  return scan;
}

Found found_in(const StateSlice& slice, const ParamLayout& layout) {
  const std::optional<std::int64_t> at = first_nonfinite_of(slice);
  if (!at) return {};
  Found found{.unit = slice.unit, .tensor = 0};
  for (const ParamTensor& t : layout.unit(slice.unit).tensors) {
    if (t.segment == slice.segment && t.offset <= *at && *at < t.offset + t.numel()) break;
    ++found.tensor;
  }
  return found;
}

}  // namespace

void stop_or_warn(const RunShape& shape, const std::string& said, const std::string& fix) {
  if (shape.workload.optim.nonfinite == OnNonFinite::stop)
    throw ClaimError(fmt::format("{}\n  fix: {}; with optim.nonfinite=skip this is a warning", said, fix));
  if (shape.rank == Rank{0}) spdlog::warn("{}", said);
}

std::string nonfinite_weight(Strategy& strategy, const ParamLayout& layout, Communicator& comm, bool exact) {
  const std::vector<StateSlice> slices = strategy.state();
  const bool has_master = std::ranges::any_of(
      slices, [](const StateSlice& s) { return s.version == 0 && s.purpose == Purpose::master; });
  Found own;
  for (const StateSlice& slice : slices) {
    const bool master = slice.purpose == Purpose::master;
    if (slice.version != 0 || !(master || slice.purpose == Purpose::parameters)) continue;
    if (exact && has_master && !master) continue;
    own = std::min(own, found_in(slice, layout));
  }
  for (const Found& of_rank : gather_on_all(comm, own, {OpPurpose::numbers})) own = std::min(own, of_rank);
  if (own.none()) return "";
  const UnitLayout& unit = layout.unit(static_cast<int>(own.unit));
  const auto index = static_cast<std::size_t>(own.tensor);
  return fmt::format("{} of unit {}", index < unit.tensors.size() ? unit.tensors[index].name : "padding",
                     own.unit);
}

void throw_nonfinite(Strategy& strategy, double loss, std::int64_t step, const RunShape& shape,
                     Communicator& comm) {
  std::vector<int> ranks;
  std::set<std::int64_t> of_data_ranks;
  std::int64_t unit = kNone;
  int rank = -1;
  for (const Scan& found : gather_on_all(comm, scan_of(strategy), {OpPurpose::numbers})) {
    ++rank;
    unit = std::max(unit, found.summed);
    if (found.own == kNone) continue;
    ranks.push_back(rank);
    of_data_ranks.insert(shape.mesh.at(Axis::data, Rank{rank}));
  }
  std::string who = "no rank's last micro-batch shows it: an earlier one, or the sum, made it";
  if (ranks.size() == 1) who = fmt::format("it came from rank {}'s own micro-batches", ranks.front());
  if (ranks.size() > 1)
    who = fmt::format("it came from the micro-batches of ranks {}{}", fmt::join(ranks, ", "),
                      of_data_ranks.size() == 1 ? ", which compute them together" : "");
  throw ClaimError(
      fmt::format("step {}: {} not finite{}; {}\n  fix: a smaller optim.lr, a longer optim.warmup_steps, or "
                  "optim.clip=1 where it is 0",
                  step, std::isfinite(loss) ? "the gradient is" : "the loss is",
                  unit == kNone ? "" : fmt::format(", first seen in unit {}", unit), who));
}

}  // namespace sc::detail
