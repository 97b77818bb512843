// Interface probe, deleted when lesson 05 exists: gradients go to host buffers unit by unit, Adam runs there,
// parameters come back.
#include "common/model/unit_views.h"
#include "common/optim/grad_norm.h"
#include "lessons/00_one_device/reference_order.h"
#include "tests/support/harness.h"

namespace sc {
namespace {

struct HostAdamProbe {
  struct Options {};
  static MemoryPlan memory_plan(const RunShape& shape, const Options&) {
    MemoryPlan plan;
    const Bytes psi = bytes_of(ParamLayout(shape.workload.model, shape.world).arena_size(), DType::f32);
    plan.add(Purpose::parameters, "params", "4 P", psi);
    plan.add(Purpose::gradients, "grads", "4 P", psi);
    plan.add(Purpose::host, "gradient, master, momentum, variance", "16 P", psi * 4);
    plan_activation_buffers(shape, plan);
    return plan;
  }
  static CommPlan comm_plan(const RunShape&, const Options&) { return {}; }

  HostAdamProbe(RunContext& context, const Options&)
      : context_(context),
        layout_(context.shape.workload.model, context.shape.world),
        gpt_(shape_of(context.shape), layout_),
        buffers_(gpt_, context.ledger) {
    const auto arena = [&](Purpose p) {
      return context.ledger.zeros(p, "probe", {layout_.arena_size().value()}, DType::f32);
    };
    params_ = unit_views(layout_, arena(Purpose::parameters));
    grads_ = unit_views(layout_, arena(Purpose::gradients));
    for (auto* host : {&grads_host_, &master_host_, &m_host_, &v_host_})
      *host = unit_views(layout_, arena(Purpose::host));
    for (int unit = 0; unit < layout_.num_units(); ++unit) {
      init_unit(layout_, unit, context.shape.workload.seed, params_[unit]);
      master_host_[unit].sharded.copy_(params_[unit].sharded);
    }
  }
  StepResult train_step(std::span<const Batch> micro_batches) {
    const int L = layout_.num_blocks(), last = L + 1;
    buffers_.sums.zero_();
    for (std::size_t j = 0; j < micro_batches.size(); ++j) {
      const Write write = j == 0 ? Write::overwrite : Write::accumulate;
      const bool send = j + 1 == micro_batches.size();
      const Batch& batch = micro_batches[j];
      gpt_.embed(params_[0], batch.tokens, buffers_.x[0]);
      for (int unit = 1; unit <= L; ++unit) {
        gpt_.forward_block(unit, params_[unit], buffers_.x[unit - 1], buffers_.saved[unit - 1], buffers_.ws,
                           buffers_.x[unit]);
      }
      at::Tensor grad_head = gpt_.head_matrix(grads_[0]);
      gpt_.head(gpt_.head_matrix(params_[0]), params_[last], buffers_.x[L], batch.targets, batch.scale,
                buffers_.grad_x[L % 2], grad_head, grads_[last], write, buffers_.ws, buffers_.result);
      if (send) to_host(last);
      for (int unit = L; unit >= 1; --unit) {
        gpt_.backward_input(unit, params_[unit], buffers_.saved[unit - 1], buffers_.grad_x[unit % 2],
                            buffers_.ws, buffers_.grad_x[(unit - 1) % 2]);
        gpt_.backward_weights(unit, buffers_.saved[unit - 1], buffers_.ws, grads_[unit], write);
        if (send) to_host(unit);
      }
      gpt_.embed_backward(batch.tokens, buffers_.grad_x[0], grads_[0], Write::accumulate, write);
      if (send) to_host(0);
    }
    for (int unit = 0; unit < layout_.num_units(); ++unit)
      add_sums_of_squares({&grads_host_[unit].sharded, 1}, buffers_.sums);
    finish_sums(buffers_.sums);
    global_norm_and_clip(buffers_.sums, context_.shape.workload.optim.clip, context_.scalars);
    for (int unit = 0; unit < layout_.num_units(); ++unit) {
      adamw_step(hyper_of(context_.shape.workload.optim), context_.scalars,
                 layout_.decay_ranges(unit, Segment::sharded, {0, layout_.unit(unit).sharded_size}),
                 grads_host_[unit].sharded, master_host_[unit].sharded, m_host_[unit].sharded,
                 v_host_[unit].sharded, nullptr);
      params_[unit].sharded.copy_(master_host_[unit].sharded, /*non_blocking=*/true);
    }
    return {buffers_.sums, context_.scalars.grad_norm};
  }
  void to_host(int unit) { grads_host_[unit].sharded.copy_(grads_[unit].sharded, /*non_blocking=*/true); }
  void settle() {}
  void forward_loss(const Batch&, at::Tensor&) {}
  at::Tensor& sums() { return buffers_.sums; }
  [[nodiscard]] const ParamLayout& layout() const { return layout_; }
  std::vector<StateSlice> state() {
    std::vector<StateSlice> state;
    for (int unit = 0; unit < layout_.num_units(); ++unit) {
      const Range all{0, layout_.unit(unit).sharded_size};
      state.push_back({Purpose::parameters, unit, Segment::sharded, all, params_[unit].sharded});
      state.push_back({Purpose::variance, unit, Segment::sharded, all, v_host_[unit].sharded});
    }
    return state;
  }

  RunContext& context_;
  ParamLayout layout_;
  Gpt gpt_;
  std::vector<UnitTensors> params_, grads_, grads_host_, master_host_, m_host_, v_host_;
  ActivationBuffers buffers_;
};

TEST(HostAdamProbe, EqualsOneDeviceAndHoldsWhatItPlans) {
  const Workload w = test::odd_workload();
  const auto expected = test::run_local<ReferenceOrder>(1, w, {}, 4).at(0);
  const auto host = test::run_local<HostAdamProbe>(1, w, {}, 4).at(0);
  EXPECT_TRUE(test::bit_equal(host, expected));
  test::expect_as_planned(host);
}

}  // namespace
}  // namespace sc
