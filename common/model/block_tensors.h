// Where a unit's tensors stand in its UnitLayout (param_layout.cpp).
#pragma once

#include <cstddef>

namespace sc {

enum BlockTensor : std::size_t {
  kLn1Weight,
  kLn1Bias,
  kQkvWeight,
  kQkvBias,
  kProjWeight,
  kProjBias,
  kLn2Weight,
  kLn2Bias,
  kFcWeight,
  kFcBias,
  kOutWeight,
  kOutBias
};
enum LastTensor : std::size_t { kLnfWeight, kLnfBias, kHeadWeight };
enum FirstTensor : std::size_t { kWte, kWpe };

}  // namespace sc
