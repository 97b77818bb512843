#include "common/strategy/nonfinite.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "common/strategy/any_strategy.h"

namespace sc::detail {
namespace {

constexpr std::int64_t kNone = -1;

// What one rank found. Backward runs from the last unit to the first and carries along whatever it met, so
// the largest unit is where it began.
struct Scan {
  std::int64_t own = kNone;     // the unit whose last local gradient, of this rank's micro-batches, has it
  std::int64_t summed = kNone;  // the largest unit whose summed gradient has it
};

bool is_finite(const StateSlice& slice) {
  at::Tensor values = at::empty({std::min(slice.range.size(), kStatePiece)}, at::kFloat);
  bool finite = true;
  for_each_piece(slice.range, [&](Range piece) {
    at::Tensor part = values.narrow(0, 0, piece.size());
    slice.read(piece, part);
    finite = finite && at::isfinite(part).all().item<bool>();
  });
  return finite;
}

Scan scan_of(AnyStrategy& strategy) {
  Scan scan;
  for (const StateSlice& slice : strategy.state()) {
    const bool local = slice.purpose == Purpose::workspace;
    if (!local && slice.purpose != Purpose::gradients) continue;
    if (is_finite(slice)) continue;
    std::int64_t& unit = local ? scan.own : scan.summed;
    unit = std::max<std::int64_t>(unit, slice.unit);
  }
  return scan;
}

}  // namespace

void throw_nonfinite(AnyStrategy& strategy, double loss, std::int64_t step, Communicator& comm) {
  const Scan scan = scan_of(strategy);
  const std::int64_t world = to_int(comm.size());
  at::Tensor mine = at::empty({2}, at::kLong), all = at::empty({2 * world}, at::kLong);
  mine.mutable_data_ptr<std::int64_t>()[0] = scan.own;
  mine.mutable_data_ptr<std::int64_t>()[1] = scan.summed;
  comm.all_gather(mine, all).wait();
  const auto* found = all.const_data_ptr<std::int64_t>();
  std::string who = "no rank's last micro-batch shows it: an earlier one, or the sum, made it";
  std::int64_t unit = kNone, own = kNone;
  for (std::int64_t r = 0; r < world; ++r) {
    if (found[2 * r] > own) {  // of equal ones the lowest rank
      own = found[2 * r];
      who = fmt::format("it came from rank {}'s own micro-batches", r);
    }
    unit = std::max(unit, found[2 * r + 1]);
  }
  throw ClaimError(
      fmt::format("step {}: {} not finite{}; {}\n  fix: a smaller optim.lr, a longer optim.warmup_steps, or "
                  "optim.clip=1 where it is 0",
                  step, std::isfinite(loss) ? "the gradient is" : "the loss is",
                  unit == kNone ? "" : fmt::format(", first seen in unit {}", unit), who));
}

}  // namespace sc::detail
