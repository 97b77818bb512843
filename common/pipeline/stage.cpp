#include "common/pipeline/stage.h"

#include <ATen/ops/empty.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "common/base/check.h"
#include "common/strategy/replica_hash.h"

namespace sc {

void Stage::move_newest(int to) {
  if (to == newest_buffer_) return;
  if (!has_master_)
    versions_[static_cast<std::size_t>(to)].copy_(versions_[static_cast<std::size_t>(newest_buffer_)]);
  newest_buffer_ = to;
  for (Held& held : held_) {
    hold_params(held, to);
    if (!has_master_) held.own.master = held.own.params;
  }
}

std::span<Stage::Held> Stage::completed_by(int unit) {
  const auto by = [this](const Held& held) { return held.copy ? share_.layout.last_unit() : held.unit; };
  return std::ranges::equal_range(held_, unit, {}, by);
}

std::vector<OwnedSlice> Stage::slices() const {
  std::vector<OwnedSlice> slices;
  for (const Held& held : held_) slices.push_back(held.own);
  return slices;
}

std::vector<std::pair<int, at::Tensor>> Stage::params_in(int buffer) const {
  std::vector<std::pair<int, at::Tensor>> units;
  for (const Held& held : held_) {
    const auto unit = static_cast<std::size_t>(held.unit);
    units.emplace_back(held.unit, params_[static_cast<std::size_t>(buffer)][unit].segment(held.segment));
  }
  return units;
}

at::Tensor Stage::tied_grad() const {
  for (const Held& held : held_) {
    if (!held.has_wte()) continue;
    const std::int64_t end = std::min(held.own.range.end, share_.tied);
    if (end > held.own.range.begin) return held.own.grads.narrow(0, 0, end - held.own.range.begin);
  }
  return {};
}

StateSlice Stage::last_local() const {
  const int unit = share_.part(share_.stage).first - 1;  // a step's last backward is that of the first chunk
  const at::Tensor values = layers_->last_gradient().view({-1});
  return {Purpose::workspace, unit, Segment::sharded, {0, values.numel()}, in_tensor(values)};
}

void require_equal_copies(Communicator& group, const Stage::Held& held, std::int64_t elements,
                          std::int64_t step) {
  at::Tensor mine = at::empty({1}, at::kLong), all = at::empty({to_int(group.size())}, at::kLong);
  mine.mutable_data_ptr<std::int64_t>()[0] = replica_hash(held.params.narrow(0, 0, elements));
  group.all_gather(mine, all, {OpPurpose::hashes, held.unit}).wait();
  const int odd = first_different(all);
  if (odd < 0) return;
  throw ClaimError(
      fmt::format("step {}: two copies of unit {} differ: they must stay equal to the bit", step, held.unit));
}

}  // namespace sc
