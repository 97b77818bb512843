#include "lessons/11_combined/exercise/three_groups.h"

namespace sc {

MeshColors colors_of(const MeshPlace& place) {
  const int part = place.rank % place.tensor, replica = place.rank / place.tensor % place.data,
            stage = place.rank / (place.tensor * place.data);
  const bool end = stage == 0 || stage + 1 == place.stages;
  return {.tensor = stage * place.data + replica,
          .data = stage * place.tensor + part,
          .ends = end && place.stages > 1 ? replica * place.tensor + part : -1};
}

void sum_gradients(StageGradients& gradients, const MeshGroups& groups) {
  groups.tensor->all_reduce(gradients.norms.full).wait();
  for (SlicedGradient* gradient : {&gradients.matrices, &gradients.norms, &gradients.tied})
    if (gradient->full.defined()) groups.data->reduce_scatter(gradient->full, gradient->slice).wait();
  if (groups.ends != nullptr) groups.ends->all_reduce(gradients.tied.slice).wait();
}

}  // namespace sc
