// The passes of a step, for traces and for questions about what a moment is spent on. No torch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/watch/comm_op.h"

namespace sc {

/// The passes of a unit. `head` is logits, loss and both gradients; `backward` is both halves as one action
/// of a pipeline, with the head's; `norm` is the norm of the whole gradient and the clip factor; `update` is
/// AdamW.
enum class Pass : std::uint8_t {
  none,
  forward,
  head,
  backward,
  backward_input,
  backward_weights,
  embed_backward,
  norm,
  update
};
std::string_view name_of(Pass pass);

/// One call of a pass, for a unit and a micro-batch.
struct Computed {
  Pass pass{};
  int unit = kNoUnit;    // numbered as in What
  int micro_batch = -1;  // number in the step; -1: none, or all
};
/// A pass in words: "backward_weights of block 7, micro-batch 2". `last_unit` is the model's last unit; with
/// kNoUnit units are numbers. The micro-batch is named if a step has `several`.
std::string describe(const Computed& computed, int last_unit = kNoUnit, bool several = true);

}  // namespace sc
