// What a stage holds.
#include "stage.h"

namespace sc {

Stage::Stage(const RunContext& context, const Share& share)
    : share_(share),
      gpt_(shape_of(context.shape), share.layout),
      buffers_(gpt_, context.ledger, share.buffers),
      last_grad_(buffers_.grad_x[0]) {
  const PrecisionConfig& precision = context.shape.workload.precision;
  const auto arena = [&](Purpose purpose, const char* name, DType dtype) {
    return context.ledger.zeros(purpose, name, {share.elements.value()}, dtype);
  };
  params_ = units_of(arena(Purpose::parameters, "params_stage", precision.dtype));
  grads_ = units_of(arena(Purpose::gradients, "grads_stage", precision.grad_dtype));
  const OptimizerState state(context, share.elements, "stage");
  const std::vector<UnitTensors> master = state.master.defined() ? units_of(state.master) : params_,
                                 momentum = units_of(state.momentum), variance = units_of(state.variance);
  const auto own = [&](int unit) {
    const auto u = static_cast<std::size_t>(unit);
    OwnedSlice s{.unit = unit, .range = {0, params_[u].sharded.numel()}};
    s.params = params_[u].sharded, s.grads = grads_[u].sharded, s.master = master[u].sharded;
    s.momentum = momentum[u].sharded, s.variance = variance[u].sharded;
    // A function of seed, name and element: every stage has the bits that lesson 00 has, the copy those of wte.
    init_slice(share.layout, unit, s.segment, s.range, context.shape.workload.seed, s.master);
    if (state.master.defined()) s.params.copy_(s.master);
    slices_.push_back(std::move(s));
  };
  for (int unit = 0; unit < share.layout.num_units(); ++unit)
    if (share.begin(unit) >= 0) own(unit);
  if (share.tied_copy > 0) own(0);
}

std::vector<UnitTensors> Stage::units_of(const at::Tensor& arena) const {
  std::vector<UnitTensors> units(static_cast<std::size_t>(share_.layout.num_units()));
  for (int unit = 0; unit < share_.layout.num_units(); ++unit) {
    if (share_.begin(unit) >= 0)
      units[static_cast<std::size_t>(unit)].sharded =
          arena.narrow(0, share_.begin(unit), share_.layout.unit(unit).sharded_size);
  }
  if (share_.tied_copy > 0)
    units[0].sharded = arena.narrow(0, arena.numel() - share_.tied_copy, share_.tied_copy);
  return units;
}

}  // namespace sc
