#include "lessons/00_one_device/exercise/token_weighted.h"

#include "common/base/not_solved.h"

namespace sc {

/// The gradient of one step over micro-batches whose numbers of targets differ.
///   micro_batches  tokens, targets [B, T]; a target < 0 has no loss, and a micro-batch may have no other. At
///                  least one target has.
///   Result         model.grads() holds the gradient of the mean loss over all targets of the step: every
///                  token counts alike, wherever it stands. (The mean of the micro-batches' means would let a
///                  token of a short one count more.) Returned is that mean loss, in nats a token.
///   Cost           one forward_backward a micro-batch; no gradient beside model.grads().
///   Before         model.grads() and model.sums() hold what the step before left there.
double accumulate(TinyGpt& model, std::span<const Batch> micro_batches) {
  // TODO: count first, then compute. count_targets(batch), model.forward_backward(batch, scale, write),
  // model.sums().
  throw NotSolved();
}

}  // namespace sc
