// Bytes of model states that ZeRO's stages keep on one rank, without padding, activations and gathered units.
// No torch.
#pragma once

#include "common/base/types.h"
#include "common/config/workload.h"

namespace sc {

/// The model states that are divided among the data-parallel ranks.
enum class ZeroStage {
  none,       // everything on every rank
  optimizer,  // ZeRO-1: master, momentum, variance
  gradients,  // ZeRO-2: gradients too
  parameters  // ZeRO-3: parameters too
};

/// Bytes of model states on one of `world` ranks, for `parameters` elements that `world` divides.
///   Source  Rajbhandari et al., ZeRO, arXiv:1910.02054, figure 1: 7.5 billion parameters on 64 ranks in fp16
///           with K = 12 bytes of optimizer state are 120, 31.4, 16.6 and 1.9 GB.
inline Bytes model_states(Elements parameters, WorldSize world, ZeroStage stage,
                          const PrecisionConfig& precision) {
  const auto held = [&](DType dtype, ZeroStage divided_from) {
    const std::int64_t ranks = stage >= divided_from ? to_int(world) : 1;
    return bytes_of(Elements(parameters.value() / ranks), dtype);
  };
  const Bytes master = precision.has_master() ? held(DType::f32, ZeroStage::optimizer) : Bytes(0);
  return held(precision.dtype, ZeroStage::parameters) + held(precision.grad_dtype, ZeroStage::gradients) +
         master + held(DType::f32, ZeroStage::optimizer) * 2;
}

}  // namespace sc
