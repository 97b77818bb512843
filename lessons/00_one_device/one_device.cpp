#include "one_device.h"

namespace sc {

// [anchor: one-step]
// The whole of training's arithmetic. The other lessons write their communication between these lines.
StepResult OneDevice::train_step(std::span<const Batch> micro_batches) {
  sums_.zero_();
  for (std::size_t j = 0; j < micro_batches.size(); ++j) {
    const Batch& batch = micro_batches[j];
    const Write write = j == 0 ? Write::overwrite : Write::accumulate;
    forward(batch);
    passes_.head(batch, params_full_, grads_full_, write, sums_);  // loss; gradients of x, the head's, ln_f's
    // Last block first: a block's backward needs the gradient of its output, which the block above leaves.
    for (int unit = layout_.num_blocks(); unit >= 1; --unit) {
      passes_.backward_input(unit, params_full_[unit]);
      passes_.backward_weights(unit, grads_full_[unit], write);
    }
    passes_.embed_backward(batch, grads_full_[0], write);  // the tied head opened it, this completes it
  }
  global_norm();
  for (int unit = 0; unit < layout_.num_units(); ++unit) step_unit(unit);
  return {sums_, context_.scalars.grad_norm};
}

void OneDevice::forward(const Batch& batch) {
  for (int unit = 0; unit <= layout_.last_unit(); ++unit) passes_.forward(unit, batch, params_full_[unit]);
}

void OneDevice::forward_loss(const Batch& batch, at::Tensor& sums) {
  forward(batch);
  passes_.head_loss(batch, params_full_, sums);
}

// [anchor: global-norm]
// The norm of the whole gradient first: every element is scaled by the same factor, so nothing can be stepped
// before the last square is known. The divisor of the loss was the global batch's tokens (Batch::scale):
// nothing is divided.
void OneDevice::global_norm() {
  const auto mark = context_.timeline.mark(Pass::norm);
  add_sums_of_squares(grads_of(slices_), sums_);
  finish_sums(sums_);
  global_norm_and_clip(sums_, context_.shape.workload.optim.clip, context_.scalars);
}

// [anchor: update]
// AdamW, from the gradient, two moments and (in 16 bits) the fp32 master.
void OneDevice::step_unit(int unit) {
  const auto mark = context_.timeline.mark(Pass::update, unit);
  OwnedSlice& s = slices_[unit];
  const Workload& w = context_.shape.workload;
  adamw_step(hyper_of(w.optim), context_.scalars, layout_.decay_ranges(unit, s.segment, s.range), s.grads,
             s.master, s.momentum, s.variance, w.precision.has_master() ? &s.params : nullptr);
}

}  // namespace sc
