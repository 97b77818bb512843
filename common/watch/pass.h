// What a rank computes: for the trace, and for whoever asks what a moment of a step is spent on. No torch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/watch/comm_op.h"

namespace sc {

/// head: logits, loss, and the gradients of both. backward: both halves, of an action of a pipeline, the
/// head's with them.
/// norm: of the whole gradient, and what clips it. update: AdamW.
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

/// One call of a pass.
struct Computed {
  Pass pass{};
  int unit = kNoUnit;    // as Operation has it
  int micro_batch = -1;  // of the step; -1: of none, or of all
};
/// "backward_weights of block 7, micro-batch 2". last_unit: of the model; kNoUnit: units are numbers.
/// Micro-batches are named where `several` are in a step.
std::string describe(const Computed& computed, int last_unit = kNoUnit, bool several = true);

}  // namespace sc
