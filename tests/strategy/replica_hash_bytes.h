// Tensors of any bytes, for the tests of replica_hash.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/randint.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>

namespace sc::test {

/// The types of replicas, and of what travels with them.
inline constexpr std::array kHashedTypes = {at::kFloat, at::kBFloat16, at::kHalf, at::kLong, at::kByte};
/// Elements: none, one, on either side of a word of each type, more than a block's words.
inline constexpr std::array<std::int64_t, 12> kHashedSizes = {0, 1, 2, 3, 4, 5, 7, 8, 9, 1023, 1024, 2049};

/// n elements of any bits, on the CPU.
inline at::Tensor any_bytes(std::int64_t n, at::ScalarType type) {
  const auto size = static_cast<std::int64_t>(c10::elementSize(type));
  return at::randint(256, {n * size}, at::TensorOptions().dtype(at::kByte)).view(type);
}

/// Flips the lowest bit of byte `at`; a second time flips it back.
inline void flip(const at::Tensor& t, std::int64_t at) {
  at::Tensor byte = t.view(at::kByte).narrow(0, at, 1);
  byte.bitwise_xor_(1);
}

}  // namespace sc::test
