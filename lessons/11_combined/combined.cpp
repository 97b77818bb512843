#include "combined.h"

#include "common/strategy/passes.h"

namespace sc {

// [anchor: tokens-of-the-context-axis]
// Without a context axis micro-batches stay as they are.
std::vector<Batch> InnerAxes::own(std::span<const Batch> micro_batches) const {
  std::vector<Batch> own(micro_batches.begin(), micro_batches.end());
  for (std::size_t j = 0; context_ranks_ && j < own.size(); ++j)
    own[j] = own_tokens(own[j], PartSizes(shape_), own_tokens_[static_cast<std::int64_t>(j)]);
  return own;
}

// The step is lesson 07's Pipeline::train_step, which computes with a TensorStage, and calls what follows.

// [anchor: each-axis-its-sum]
// A part of a matrix is this tensor rank's alone (Segment::sharded). Its gradient is complete with its unit's
// last backward and has left for the replicas then (the ranks of the data and the context axis), as in lesson
// 07. Norms, biases and positions are whole on every tensor rank, and each has seen its own tokens only:
// their gradients are summed over the tensor ranks first, and then over the replicas.
void Combined::wait_reduced() {
  if (tensor_ && tokens_ == TokenShare::split)
    tensor_->all_reduce(stage_.whole_grads(), {OpPurpose::gradients}).wait();
  for (Stage::Held& held : stage_.held())
    if (held.segment == Segment::whole) reduce(held);
  Pipeline::wait_reduced();
}

// [anchor: one-norm-over-the-mesh]
// Each rank squares its slice of its part. The first tensor rank squares what all of them have, and the first
// stage the tied matrix.
bool Combined::squares(const Stage::Held& held) const {
  const bool counted_here = held.segment == Segment::sharded || context_.shape.at(Axis::tensor) == 0;
  return counted_here && Pipeline::squares(held);
}

// [anchor: verify-copies]
// What is held twice must be equal to the bit along each axis: the replicas' parameters and both copies of
// wte, as in lesson 07, and what every tensor rank has.
bool Combined::compare_copies(std::int64_t step) {
  const bool among_stages = Pipeline::compare_copies(step);
  if (!tensor_) return among_stages;
  for (const Stage::Held& held : stage_.held())
    if (held.segment == Segment::whole) require_equal_copies(*tensor_, held, held.params.numel(), step);
  return true;
}

}  // namespace sc
