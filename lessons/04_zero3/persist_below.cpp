// Lesson 04's setting `persist_below`: a unit's whole segment holds the tensors that are too small to be
// worth a gather. Without the setting those segments are empty.
#include "zero3.h"

namespace sc {

// [anchor: publish-what-stays-whole]
// Gradient and optimizer state of a whole segment are sharded, but every rank keeps all of its parameters:
// once per step their owners' updated slices go to all.
void Zero3::publish_params() {
  for (int unit = 0; unit < layout_.num_units(); ++unit) {
    at::Tensor& whole = params_full_[unit].whole;
    if (whole.defined())
      published_[unit] = shards_.all_gather(slices_of(unit)[1].params, whole, {OpPurpose::parameters, unit});
  }
}

// Nothing remembers whether the last step is published already: a step that a graph replays could not say so.
void Zero3::quiet() {
  publish_params();
  for (Ticket& ticket : published_) ticket.wait();
  release_params();
}

}  // namespace sc
