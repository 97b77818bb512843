#include "tensor_stage.h"

#include <stdexcept>

#include "combined_plan.h"
#include "common/strategy/owned_slice.h"

namespace sc {

TensorStage::TensorStage(const RunContext& context, Communicator& group, const Share& share,
                         const PartSizes& sizes)
    : share_(share),
      parts_(context.shape, share.layout, sizes),
      buffers_(context.shape, sizes, part_stage_shape(share), /*kept=*/false, context.ledger,
               window_of(group, WindowUse::sums)),
      lane_(parts_, group, context.shape.workload.activations, /*kept=*/false, buffers_.ws),
      sums_(context.ledger.zeros(step_sums())),
      last_(&lane_.newest()) {}

void TensorStage::begin(const StageVectors& v, const Part& part, const Slot& slot) {
  lane_.use(v.params, v.grads);
  lane_.begin(set(slot), part.first, part.last());
}

void TensorStage::forward(const StageVectors& v, int position, const at::Tensor& tokens, const Slot& slot) {
  const Part& part = share_.part(position);
  set(slot).input = input(slot);
  begin(v, part, slot);
  if (share_.embeds(position)) {
    lane_.embed(tokens);
    lane_.end_embedding();
  } else {
    lane_.enter(part.first);
  }
  for (int unit = part.first; unit <= part.last(); ++unit) {
    lane_.first_product(unit, Half::attention);
    lane_.second_product(unit, Half::attention);
    lane_.end_attention(unit);
    lane_.first_product(unit, Half::mlp);
    lane_.second_product(unit, Half::mlp);
    unit < part.last() ? lane_.end_block(unit) : lane_.end_last_block(unit);
  }
}

void TensorStage::head(const StageVectors& v, const at::Tensor& targets, const at::Tensor& scale,
                       const Slot& slot, Write write, at::Tensor& sums) {
  begin(v, share_.part(share_.schedule.positions() - 1), slot);
  lane_.enter_head();
  lane_.head(targets, scale, write, sums);
  lane_.head_backward(write);
}

void TensorStage::head_loss(const StageVectors& v, const at::Tensor& targets, const Slot& slot,
                            at::Tensor& sums) {
  begin(v, share_.part(share_.schedule.positions() - 1), slot);
  lane_.enter_head();
  lane_.head(targets, /*scale=*/{}, Write::overwrite, sums);
}

void TensorStage::backward(const StageVectors& v, int unit, const Slot& slot, Write write, Halves halves) {
  if (!halves.inputs || !halves.weights)
    throw std::logic_error("tensor ranks hide messages behind weights: backward is not halved");
  const Part& part = share_.part_of(unit);
  begin(v, part, slot);
  if (unit == part.last() && slot.grad_of_output != kNoBuffer)
    lane_.take_gradient(gradient(slot.grad_of_output), unit + 1);
  lane_.recompute(unit);
  const bool leaves = unit == part.first && slot.grad_of_input != kNoBuffer;  // for the stage before
  for (const Half half : {Half::mlp, Half::attention}) {
    lane_.backward_to_norm(unit, half);
    lane_.second_weights(unit, half, write);
    lane_.backward_of_norm(unit, half,
                           leaves && half == Half::attention ? &gradient(slot.grad_of_input) : nullptr);
    lane_.first_weights(unit, half, write);
  }
  lane_.vectors(unit, write);
  last_ = leaves ? &gradient(slot.grad_of_input) : &lane_.newest();
}

void TensorStage::embed_backward(const StageVectors& v, const at::Tensor& tokens, const Slot& slot,
                                 Write write) {
  begin(v, share_.part_of(1), slot);
  // The head's part of wte's gradient is on the last stage. With one stage it is here already, and wte
  // accumulates.
  const bool joint = share_.first && share_.last && share_.layout.config().tied;
  lane_.embed_backward(tokens, joint ? Write::accumulate : write, write);
}

at::Tensor& TensorStage::input(const Slot& slot) {
  if (slot.input_in_set == kNoBuffer) return buffers_.inputs[static_cast<std::size_t>(slot.input)];
  return buffers_.sets[static_cast<std::size_t>(slot.input_in_set)].x.back();
}

}  // namespace sc
