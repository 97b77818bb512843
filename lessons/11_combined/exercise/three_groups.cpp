#include "lessons/11_combined/exercise/three_groups.h"

namespace sc {

/// The groups of one rank.
///   tensor  who shares this stage's matrices and reads the same rows
///   data    who has the same part of the same matrices and reads other rows
///   ends    who has the same part of wte at the pipeline's other end; -1 for a rank in between, and where
///           there is one stage
MeshColors colors_of(const MeshPlace& place) {
  // TODO: this is right for one stage.
  return {.tensor = place.rank / place.tensor, .data = place.rank % place.tensor, .ends = -1};
}

/// Ends backward of a step of lesson 11 with states=sharded: afterwards each `slice` is this data rank's
/// slice of the gradient of all the step's tokens. With one stage nobody else has `tied`; between the ends it
/// is undefined.
///   Cost   at most the bytes of a reduce_scatter of each over the data group, an all_reduce of `norms` over
///          the tensor group, and an all_reduce of a slice of `tied` over the ends
///   After  every ticket has been waited for. Of `full` nothing is promised.
void sum_gradients(StageGradients& gradients, const MeshGroups& groups) {
  // TODO: this is lesson 02's rule, where each rank has met all tokens of its rows and nothing is held twice.
  for (SlicedGradient* gradient : {&gradients.matrices, &gradients.norms, &gradients.tied})
    if (gradient->full.defined()) groups.data->reduce_scatter(gradient->full, gradient->slice).wait();
}

}  // namespace sc
