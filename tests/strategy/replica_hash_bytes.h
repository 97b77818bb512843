// Tensors of arbitrary bytes, for the tests of replica_hash.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/randint.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>

namespace sc::test {

/// Element types of replicas and of the tensors hashed with them.
inline constexpr std::array kHashedTypes = {at::kFloat, at::kBFloat16, at::kHalf, at::kLong, at::kByte};
/// Numbers of elements: none, one, around a hash word of each type, and more words than a block hashes.
inline constexpr std::array<std::int64_t, 12> kHashedSizes = {0, 1, 2, 3, 4, 5, 7, 8, 9, 1023, 1024, 2049};

/// n elements of arbitrary bits, on the CPU.
inline at::Tensor any_bytes(std::int64_t n, at::ScalarType type) {
  const auto size = static_cast<std::int64_t>(c10::elementSize(type));
  return at::randint(256, {n * size}, at::TensorOptions().dtype(at::kByte)).view(type);
}

/// Flips the lowest bit of byte `at`; a second call undoes the first.
inline void flip(const at::Tensor& t, std::int64_t at) {
  at::Tensor byte = t.view(at::kByte).narrow(0, at, 1);
  byte.bitwise_xor_(1);
}

}  // namespace sc::test
