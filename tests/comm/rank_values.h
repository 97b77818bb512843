// Numbers that ranks contribute to an operation, and the expected results: computed in rank order, without
// the code under test.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "common/base/counter_random.h"
#include "common/comm/op_check.h"

namespace sc::test {

inline const std::vector<std::int64_t> kCounts = {0, 1, 3, 63, 64, 100003};

/// How a program's tensors are made, set before its tests run.
struct Values {
  at::Device device = at::kCPU;
  bool any_order = false;  // sums are exact in whatever order a backend adds
};
inline Values value_settings;  // not a static of a function: its guard would be taken for each element
inline Values& values() { return value_settings; }

// The number that a rank contributes at a place: mixed in size and sign, so that another order of summing
// gives another result.
template <class T>
T number(std::int64_t rank, std::int64_t i, std::int64_t salt) {
  const std::uint64_t h =
      mix64(mix64(static_cast<std::uint64_t>(rank * 1000 + salt)) + static_cast<std::uint64_t>(i));
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(h >> 8);
  } else if (values().any_order) {  // bf16 holds whole numbers up to 256
    return static_cast<T>(static_cast<float>(h % 31) - 15);
  } else {
    const double scale = static_cast<double>(1 << (h >> 40) % 12) / 64;
    return static_cast<T>(static_cast<float>((static_cast<double>(h % 20001) - 10000) / 7000 * scale));
  }
}

// The type in which sums accumulate: fp32 for 16-bit types; integers wrap.
template <class T>
using SumOf = std::conditional_t<
    sizeof(T) == 2, float,
    typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::type_identity<T>>::type>;

// The sum over ranks of element i, in rank order, rounded once.
template <class T>
T expected_sum(std::int64_t world, std::int64_t i, std::int64_t salt) {
  using Sum = SumOf<T>;
  auto sum = static_cast<Sum>(number<T>(0, i, salt));
  for (std::int64_t r = 1; r < world; ++r)
    sum = static_cast<Sum>(sum + static_cast<Sum>(number<T>(r, i, salt)));
  return static_cast<T>(sum);
}

/// What expect_values compares with: element i of all ranks' sum, or of one rank's numbers, after `begin`.
template <class T>
auto sum_of_all(std::int64_t world, std::int64_t salt, std::int64_t begin = 0) {
  return [=](std::int64_t i) { return expected_sum<T>(world, begin + i, salt); };
}
template <class T>
auto numbers_of(std::int64_t rank, std::int64_t salt) {
  return [=](std::int64_t i) { return number<T>(rank, i, salt); };
}

template <class T>
at::Tensor filled(std::int64_t rank, std::int64_t n, std::int64_t salt) {
  at::Tensor t = at::empty({n}, c10::CppTypeToScalarType<T>::value);
  T* data = t.mutable_data_ptr<T>();
  for (std::int64_t i = 0; i < n; ++i) data[i] = number<T>(rank, i, salt);
  return values().device.is_cpu() ? t : t.to(values().device);
}

inline at::Tensor uninitialised(std::int64_t n, at::ScalarType type) {
  return at::empty({n}, at::TensorOptions().dtype(type).device(values().device));
}

// Checks that elements [begin, begin + n) of `t` are bit for bit want(0), want(1), ...
template <class T, class Want>
void expect_values(const at::Tensor& t, std::int64_t begin, std::int64_t n, const Want& want,
                   const std::string& what) {
  const at::Tensor host = t.cpu();  // of a GPU: on the current stream, so after the ticket's wait
  const T* data = host.const_data_ptr<T>();
  for (std::int64_t i = 0; i < n; ++i) {
    const T got = data[begin + i], wanted = want(i);
    if (std::memcmp(&got, &wanted, sizeof(T)) != 0) {
      ADD_FAILURE() << what << ": element " << i << " of " << n << " " << name_of(dtype_of(t)) << " is "
                    << static_cast<double>(got) << ", not " << static_cast<double>(wanted);
      return;
    }
  }
}

template <class T>
const std::vector<std::int64_t>& counts() {
  static const std::vector<std::int64_t> few = {0, 1, 3, 64};
  const bool common = std::is_same_v<T, float> || std::is_same_v<T, double> ||
                      std::is_same_v<T, c10::BFloat16> || std::is_same_v<T, std::int64_t>;
  return common ? kCounts : few;
}

template <class Body>
void for_all_types(const Body& body) {
  body(float{});
  body(double{});
  body(c10::BFloat16{});
  body(std::int64_t{});
  body(c10::Half{});
  body(std::int32_t{});
  body(std::uint8_t{});
}

}  // namespace sc::test
