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
    plan.add(Purpose::gradients, "grads_host", "4 P", psi, Place::pinned);
    plan.add(Purpose::parameters, "params_host", "4 P", psi, Place::pinned);  // the master itself
    plan.add(Purpose::momentum, "momentum", "4 P", psi, Place::host);
    plan.add(Purpose::variance, "variance", "4 P", psi, Place::host);
    plan_activation_buffers(shape, plan);
    return plan;
  }
  static CommPlan comm_plan(const RunShape& shape, const Options&) {
    const ParamLayout layout(shape.workload.model, shape.world);
    CommPlan plan;
    for (int unit = 0; unit < layout.num_units(); ++unit) {
      const Elements size(layout.unit(unit).sharded_size);
      plan.add(CommKind::to_host, DType::f32, size, WorldSize{1});
      plan.add(CommKind::to_device, DType::f32, size, WorldSize{1});
    }
    return plan;
  }
  static constexpr const char* kNoGraph = "the host computes in the middle of a step";

  HostAdamProbe(RunContext& context, const Options&)
      : context_(context),
        layout_(context.shape.workload.model, context.shape.world),
        gpt_(shape_of(context.shape), layout_),
        buffers_(gpt_, context.ledger),
        left_(static_cast<std::size_t>(layout_.num_units())) {
    const auto arena = [&](Purpose p, Place place) {
      return unit_views(layout_,
                        context.ledger.zeros(p, "probe", {layout_.arena_size().value()}, DType::f32, place));
    };
    params_ = arena(Purpose::parameters, Place::device);
    grads_ = arena(Purpose::gradients, Place::device);
    grads_host_ = arena(Purpose::gradients, Place::pinned);
    master_host_ = arena(Purpose::parameters, Place::pinned);
    m_host_ = arena(Purpose::momentum, Place::host);
    v_host_ = arena(Purpose::variance, Place::host);
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
      gpt_.embed(params_[0], batch.tokens, buffers_.x(0));
      for (int unit = 1; unit <= L; ++unit) {
        gpt_.forward_block(unit, params_[unit], buffers_.x(unit - 1), buffers_.saved(unit), buffers_.ws,
                           buffers_.x(unit));
      }
      at::Tensor grad_head = gpt_.head_matrix(grads_[0]);
      gpt_.head(gpt_.head_matrix(params_[0]), params_[last], buffers_.x(L), batch.targets, batch.scale,
                buffers_.grad_x[L % 2], grad_head, grads_[last], write, buffers_.ws, buffers_.result);
      if (send) to_host(last);
      for (int unit = L; unit >= 1; --unit) {
        gpt_.backward_input(unit, params_[unit], buffers_.saved(unit), buffers_.grad_x[unit % 2], buffers_.ws,
                            buffers_.ws.grads, buffers_.grad_x[(unit - 1) % 2]);
        gpt_.backward_weights(unit, buffers_.saved(unit), buffers_.ws, buffers_.ws.grads, grads_[unit],
                              write);
        if (send) to_host(unit);
      }
      gpt_.embed_backward(batch.tokens, buffers_.grad_x[0], grads_[0], Write::accumulate, write);
      if (send) to_host(0);
    }
    for (Ticket& ticket : left_) ticket.wait_on_host();
    for (int unit = 0; unit < layout_.num_units(); ++unit)
      add_sums_of_squares({&grads_host_[unit].sharded, 1}, buffers_.sums);
    finish_sums(buffers_.sums);
    global_norm_and_clip(buffers_.sums, context_.shape.workload.optim.clip, context_.scalars);
    for (int unit = 0; unit < layout_.num_units(); ++unit) {
      adamw_step(hyper_of(context_.shape.workload.optim), context_.scalars,
                 layout_.decay_ranges(unit, Segment::sharded, {0, layout_.unit(unit).sharded_size}),
                 grads_host_[unit].sharded, master_host_[unit].sharded, m_host_[unit].sharded,
                 v_host_[unit].sharded, nullptr);
      left_[unit] = context_.copies.to_device(master_host_[unit].sharded, params_[unit].sharded);
    }
    for (Ticket& ticket : left_) ticket.wait();
    return {buffers_.sums, context_.scalars.grad_norm};
  }
  void to_host(int unit) {
    left_[unit] = context_.copies.to_host(grads_[unit].sharded, grads_host_[unit].sharded);
  }
  void quiet() {}
  void forward_loss(const Batch& batch, at::Tensor& sums) {
    const int L = layout_.num_blocks();
    gpt_.embed(params_[0], batch.tokens, buffers_.x(0));
    for (int unit = 1; unit <= L; ++unit)
      gpt_.forward_block(unit, params_[unit], buffers_.x(unit - 1), buffers_.saved(unit), buffers_.ws,
                         buffers_.x(unit));
    HeadResult result{sums.select(0, kLossSum), sums.select(0, kTokens)};
    gpt_.head_loss(gpt_.head_matrix(params_[0]), params_[L + 1], buffers_.x(L), batch.targets, buffers_.ws,
                   result);
  }
  at::Tensor& sums() { return buffers_.sums; }
  [[nodiscard]] const ParamLayout& layout() const { return layout_; }
  std::vector<StateSlice> state() {
    std::vector<StateSlice> state;
    for (int unit = 0; unit < layout_.num_units(); ++unit) {
      const Range all{0, layout_.unit(unit).sharded_size};
      state.push_back({Purpose::parameters, unit, Segment::sharded, all, in_tensor(params_[unit].sharded)});
      state.push_back(
          {Purpose::variance, unit, Segment::sharded, all, in_tensor(v_host_[unit].sharded), Place::host});
    }
    return state;
  }

  RunContext& context_;
  ParamLayout layout_;
  Gpt gpt_;
  std::vector<UnitTensors> params_, grads_, grads_host_, master_host_, m_host_, v_host_;
  ActivationBuffers buffers_;
  std::vector<Ticket> left_;  // by unit: the copy that is under way
};

TEST(HostAdamProbe, EqualsOneDeviceAndHoldsWhatItPlans) {
  const Workload w = test::odd_workload();
  const auto expected = test::run_local<ReferenceOrder>(1, w, {}, 4).at(0);
  test::expect_equals_reference(test::run_local<HostAdamProbe>(1, w, {}, 4), expected);
  test::expect_equals_reference(test::run_local<HostAdamProbe>(1, w, {}, 4, test::delayed), expected);
}

}  // namespace
}  // namespace sc
