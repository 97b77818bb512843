// The position of a unit's tensors in its UnitLayout (param_layout.cpp), and which of them a half block has.
#pragma once

#include <cstddef>
#include <cstdint>

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

/// A block is two like halves: a norm, two matrices with attention or GELU between them, and the addition of
/// the result to the half's input. Each tensor rank has rows of the first matrix and columns of the second.
enum class Half : std::uint8_t { attention, mlp };

struct HalfTensors {
  std::size_t norm_weight, norm_bias, first_weight, first_bias, second_weight, second_bias;
};
constexpr HalfTensors tensors_of(Half half) {
  if (half == Half::attention) return {kLn1Weight, kLn1Bias, kQkvWeight, kQkvBias, kProjWeight, kProjBias};
  return {kLn2Weight, kLn2Bias, kFcWeight, kFcBias, kOutWeight, kOutBias};
}

}  // namespace sc
