// The reference for lesson 08, computed in one process: every version of every stage's weights is kept, and a
// formula gives the version that a micro-batch reads. No action lists, slots, tickets or rings. Header-only.
#pragma once

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "common/model/unit_views.h"
#include "common/optim/lr_schedule.h"
#include "common/strategy/owned_slice.h"
#include "common/strategy/passes.h"
#include "common/strategy/state_plan.h"
#include "tests/support/no_plans.h"

namespace sc::test {

enum class Stale { none, stash, vertical_sync, two_buffers };

struct StaleOptions {
  Stale rule = Stale::stash;
  std::vector<int> blocks = {};   // of each stage
  std::int64_t update_every = 1;  // micro-batches
};

class StaleReference final : public Strategy {
 public:
  using Plans = NoPlans<StaleOptions>;
  using Options = StaleOptions;

  StaleReference(RunContext& context, const Options& options)
      : context_(context),
        options_(options),
        layout_(context.shape.workload.model, WorldSize{1}),
        passes_(context, layout_),
        state_(state_of_all(context, layout_)) {
    const PrecisionConfig& precision = context.shape.workload.precision;
    const auto zeros = [&](DType dtype) {
      return context.ledger.zeros(Purpose::parameters, "reference", {layout_.arena_size().value()}, dtype);
    };
    grads_ = unit_views(layout_, zeros(precision.grad_dtype));
    const std::vector<UnitTensors> first = unit_views(layout_, zeros(precision.dtype));
    for (int unit = 0; unit < layout_.num_units(); ++unit) {
      OwnedSlice slice = whole_unit(layout_, unit);
      slice.params = first[unit].sharded, slice.grads = grads_[unit].sharded;
      take_over(context, layout_, state_, slice);
      slices_.push_back(slice);
      versions_.push_back({slice.params});
    }
  }

  StepResult train_step(std::span<const Batch> micro_batches) override {
    at::Tensor step_sums = at::zeros({4}, at::kDouble);
    for (std::size_t j = 0; j < micro_batches.size(); ++j, ++microbatch_) {
      const std::int64_t k = microbatch_, every = options_.update_every;
      if (k % every == 0) {
        sums_ = at::zeros({4}, at::kDouble);
        std::int64_t targets = 0;
        for (std::int64_t i = 0; i < every; ++i)
          targets += micro_batches[j + static_cast<std::size_t>(i)].with_loss;
        divisor_ = at::full({}, 1.0 / static_cast<double>(targets), at::kFloat);
      }
      Batch batch = micro_batches[j];
      batch.scale = divisor_;
      forward_backward(k, batch, k % every == 0 ? Write::overwrite : Write::accumulate);
      if ((k + 1) % every == 0) {
        update(k / every);
        step_sums.narrow(0, 0, 2).add_(sums_.narrow(0, 0, 2));
      }
    }
    return {step_sums, context_.scalars.grad_norm.clone().copy_(norms_.back())};
  }
  void forward_loss(const Batch& batch, at::Tensor& sums) override {
    std::vector<UnitTensors> newest;
    for (const std::vector<at::Tensor>& of_unit : versions_) newest.push_back({of_unit.back(), {}});
    for (int unit = 0; unit <= layout_.last_unit(); ++unit) passes_.forward(unit, batch, newest[unit]);
    passes_.head_loss(batch, newest, sums);
  }
  [[nodiscard]] at::Tensor& sums() override { return evaluated_; }
  [[nodiscard]] std::vector<StateSlice> state() const override {
    return state_of(passes_.last_local(), slices_);
  }
  [[nodiscard]] const ParamLayout& layout() const override { return layout_; }

 private:
  static OptimizerState state_of_all(const RunContext& context, const ParamLayout& layout) {
    MemoryPlan plan;
    plan_optimizer_state(context.shape, Formula("P", layout.arena_size()), plan);
    PlannedBuffers buffers(context.ledger, plan);
    return OptimizerState(buffers);
  }
  [[nodiscard]] std::int64_t stages() const { return static_cast<std::int64_t>(options_.blocks.size()); }
  [[nodiscard]] std::int64_t stage_of_unit(int unit) const {
    int last = 0;
    for (std::int64_t s = 0; s < stages(); ++s)
      if (unit <= (last += options_.blocks[static_cast<std::size_t>(s)])) return s;
    return stages() - 1;
  }
  // The weight version that micro-batch k's forward (backward below) reads on stage s, by the rule's formula.
  [[nodiscard]] std::int64_t forward_version(std::int64_t k, std::int64_t s) const {
    const std::int64_t in_flight = options_.rule == Stale::vertical_sync ? stages() - 1 : stages() - 1 - s;
    if (options_.rule == Stale::two_buffers) return std::max<std::int64_t>(0, k / options_.update_every - 1);
    return std::max<std::int64_t>(0, k - in_flight) / options_.update_every;
  }
  [[nodiscard]] std::int64_t backward_version(std::int64_t k, std::int64_t s) const {
    return options_.rule == Stale::none ? k / options_.update_every : forward_version(k, s);
  }
  [[nodiscard]] UnitTensors version_of(int unit, std::int64_t version) const {
    return {versions_[static_cast<std::size_t>(unit)].at(static_cast<std::size_t>(version)), {}};
  }

  void forward_backward(std::int64_t k, const Batch& batch, Write write) {
    std::vector<UnitTensors> forward, backward;
    for (int unit = 0; unit < layout_.num_units(); ++unit) {
      forward.push_back(version_of(unit, forward_version(k, stage_of_unit(unit))));
      backward.push_back(version_of(unit, backward_version(k, stage_of_unit(unit))));
    }
    for (int unit = 0; unit <= layout_.last_unit(); ++unit) passes_.forward(unit, batch, forward[unit]);
    passes_.head(batch, backward, grads_, write, sums_);
    for (int unit = layout_.num_blocks(); unit >= 1; --unit) {
      passes_.backward_input(unit, backward[unit]);
      passes_.backward_weights(unit, grads_[unit], write);
    }
    passes_.embed_backward_alone(batch, grads_[0], write);
  }

  // Squares are added in the stages' order: each stage its own units, then stage after stage.
  void update(std::int64_t u) {
    const Workload& w = context_.shape.workload;
    at::Tensor all = at::zeros({4}, at::kDouble);
    for (std::int64_t s = 0; s < stages(); ++s) {
      at::Tensor of_stage = at::zeros({4}, at::kDouble);
      std::vector<at::Tensor> grads;
      for (int unit = 0; unit < layout_.num_units(); ++unit)
        if (stage_of_unit(unit) == s) grads.push_back(slices_[unit].grads);
      add_sums_of_squares(grads, of_stage);
      all.add_(of_stage);
    }
    norms_.push_back(all.select(0, kSquares).sqrt().to(at::kFloat));
    squares_.push_back(all.select(0, kSquares).clone());
    const std::int64_t every = options_.update_every, lag = (stages() - 1 + every - 1) / every;
    at::Tensor clip_by = at::zeros({4}, at::kDouble);
    if (u >= lag) clip_by.select(0, kSquares).copy_(squares_[static_cast<std::size_t>(u - lag)]);
    global_norm_and_clip(clip_by, u >= lag ? w.optim.clip : 0, context_.scalars);
    at::Tensor lr = context_.scalars.lr;
    lr.fill_(learning_rate(w.optim, u, w.steps * (w.batch.global / w.batch.micro / every)));
    for (OwnedSlice& slice : slices_) {
      std::vector<at::Tensor>& versions = versions_[static_cast<std::size_t>(slice.unit)];
      const bool has_master = w.precision.has_master();
      slice.params = versions.emplace_back(versions.back().clone());
      if (!has_master) slice.master = slice.params;
      adamw_step(hyper_of(w.optim), context_.scalars,
                 layout_.decay_ranges(slice.unit, slice.segment, slice.range), slice.grads, slice.master,
                 slice.momentum, slice.variance, has_master ? &slice.params : nullptr);
    }
  }

  RunContext& context_;
  const Options options_;
  const ParamLayout layout_;
  Passes passes_;
  OptimizerState state_;
  std::vector<UnitTensors> grads_;                 // by unit
  std::vector<OwnedSlice> slices_;                 // by unit
  std::vector<std::vector<at::Tensor>> versions_;  // by unit, by version
  std::vector<at::Tensor> norms_, squares_;        // by update
  at::Tensor sums_, divisor_;                      // of the update that is being summed
  at::Tensor evaluated_ = at::zeros({4}, at::kDouble);
  std::int64_t microbatch_ = 0;
};

}  // namespace sc::test
