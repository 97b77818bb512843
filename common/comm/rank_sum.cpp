#include "common/comm/rank_sum.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <array>

namespace sc {
namespace {

// Adds in blocks, whose sums stay in the first-level cache. An output may alias an input, because a block is
// read before it is written.
template <class T, class Sum>
void sum_typed(std::span<const void* const> in, std::span<void* const> out, std::int64_t elements) {
  constexpr std::int64_t kBlock = 8192 / static_cast<std::int64_t>(sizeof(Sum));
  std::array<Sum, kBlock> sum;
  for (std::int64_t begin = 0; begin < elements; begin += kBlock) {
    const std::int64_t n = std::min(kBlock, elements - begin);
    const T* first = static_cast<const T*>(in[0]) + begin;
    for (std::int64_t i = 0; i < n; ++i) sum[i] = static_cast<Sum>(first[i]);
    for (std::size_t r = 1; r < in.size(); ++r) {
      const T* next = static_cast<const T*>(in[r]) + begin;
      for (std::int64_t i = 0; i < n; ++i) sum[i] = static_cast<Sum>(sum[i] + static_cast<Sum>(next[i]));
    }
    for (void* target : out) {
      T* to = static_cast<T*>(target) + begin;
      for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(sum[i]);
    }
  }
}

}  // namespace

void sum_in_rank_order(DType dtype, std::span<const void* const> in, std::span<void* const> out,
                       std::int64_t elements) {
  switch (dtype) {
    case DType::f64:
      return sum_typed<double, double>(in, out, elements);
    case DType::f32:
      return sum_typed<float, float>(in, out, elements);
    case DType::bf16:
      return sum_typed<c10::BFloat16, float>(in, out, elements);
    case DType::f16:
      return sum_typed<c10::Half, float>(in, out, elements);
    case DType::i64:  // unsigned, because its overflow is defined to wrap
      return sum_typed<std::uint64_t, std::uint64_t>(in, out, elements);
    case DType::i32:
      return sum_typed<std::uint32_t, std::uint32_t>(in, out, elements);
    case DType::u8:
      return sum_typed<std::uint8_t, std::uint8_t>(in, out, elements);
  }
}

}  // namespace sc
