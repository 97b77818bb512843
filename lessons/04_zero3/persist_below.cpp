// Lesson 04's setting `persist_below`: a unit's whole segment, the tensors too small to be worth a gather.
#include "zero3.h"

namespace sc {

// [anchor: publish-what-stays-whole]
// They are sharded in gradient and optimizer state, but every rank keeps all of them: owners' updated slices
// to all, once a step.
void Zero3::publish_params() {
  for (int unit = 0; unit < layout_.num_units(); ++unit) {
    at::Tensor& whole = params_full_[unit].whole;
    if (whole.defined())
      published_[unit] = shards_.all_gather(slices_of(unit)[1].params, whole, {OpPurpose::parameters, unit});
  }
}

// Whether the last step is published already is not remembered: a step that a graph replays could not say so.
void Zero3::quiet() {
  publish_params();
  for (Ticket& ticket : published_) ticket.wait();
  release_params();
}

}  // namespace sc
