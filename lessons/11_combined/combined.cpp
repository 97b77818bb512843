#include "combined.h"

#include "common/strategy/passes.h"

namespace sc {
namespace {

constexpr int kNoBackward = -1;  // of no unit

}  // namespace

// [anchor: tokens-of-the-context-axis]
std::span<const Batch> InnerAxes::own(std::span<const Batch> micro_batches) {
  if (!context_ranks_) return micro_batches;
  own_.clear();
  for (const Batch& batch : micro_batches)
    own_.push_back(own_tokens(batch, PartSizes(shape_), own_tokens_[static_cast<std::int64_t>(own_.size())]));
  return own_;
}

// [anchor: each-axis-its-sum]
// A part of a matrix is this tensor rank's alone, and complete with its unit's last backward: it leaves for
// the data group then, as in lesson 07. Of what every tensor rank has, each has seen its own tokens only, and
// no backward completes it.
int Combined::completed_by(const Stage::Held& held) const {
  return held.segment == Segment::sharded ? Pipeline::completed_by(held) : kNoBackward;
}

// That is summed over the tensor group first, and then over the data group.
void Combined::wait_reduced() {
  if (tensor_ && tokens_ == TokenShare::split)
    tensor_->all_reduce(stage_.whole_grads(), {OpPurpose::gradients}).wait();
  reduce_grads(kNoBackward);
  Pipeline::wait_reduced();
}

// [anchor: one-norm-over-the-mesh]
// Each rank squares its slice of its part; what every tensor rank has, the first of them; the tied copy, the
// first stage.
bool Combined::squares(const Stage::Held& held) const {
  const bool counted_here = held.segment == Segment::sharded || context_.shape.at(Axis::tensor) == 0;
  return counted_here && Pipeline::squares(held);
}

// [anchor: verify-copies]
// Along each axis what is held twice is equal to the bit: a data group's vectors and both copies of wte, as
// in lesson 07, and what every tensor rank has.
bool Combined::compare_copies(std::int64_t step) {
  const bool among_stages = Pipeline::compare_copies(step);
  if (!tensor_) return among_stages;
  for (const Stage::Held& held : stage_.held())
    if (held.segment == Segment::whole) require_equal_copies(*tensor_, held, held.params.numel(), step);
  return true;
}

}  // namespace sc
