// Sizes and positions as distinct types, so that bytes never mix with elements. No torch, no MPI, no CUDA.
#pragma once

#include <compare>
#include <cstdint>
#include <string_view>

namespace sc {

/// A signed 64-bit count of one kind of thing. Arithmetic between different kinds does not compile.
template <class Tag>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(std::int64_t value) : value_(value) {}
  [[nodiscard]] constexpr std::int64_t value() const { return value_; }
  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity& operator+=(Quantity other) { return value_ += other.value_, *this; }
  constexpr Quantity& operator-=(Quantity other) { return value_ -= other.value_, *this; }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return Quantity(a.value_ + b.value_); }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return Quantity(a.value_ - b.value_); }
  friend constexpr Quantity operator*(Quantity a, std::int64_t n) { return Quantity(a.value_ * n); }
  friend constexpr Quantity operator*(std::int64_t n, Quantity a) { return a * n; }
  friend constexpr Quantity operator/(Quantity a, std::int64_t n) { return Quantity(a.value_ / n); }

 private:
  std::int64_t value_ = 0;
};

using Bytes = Quantity<struct BytesTag>;
using Elements = Quantity<struct ElementsTag>;

/// A rank's number within its communicator, 0-based.
enum class Rank : std::int32_t {};
/// How many ranks a communicator has, at least 1.
enum class WorldSize : std::int32_t {};
constexpr std::int64_t to_int(Rank rank) { return static_cast<std::int64_t>(rank); }
constexpr std::int64_t to_int(WorldSize world) { return static_cast<std::int64_t>(world); }

enum class DType : std::uint8_t { f64, f32, bf16, f16, i64, i32, u8 };
constexpr std::int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::u8:
      return 1;
  }
  return 0;
}
constexpr Bytes bytes_of(Elements elements, DType dtype) { return Bytes(elements.value() * size_of(dtype)); }
constexpr std::string_view name_of(DType dtype) {
  constexpr std::string_view kNames[] = {"f64", "f32", "bf16", "f16", "i64", "i32", "u8"};
  return kNames[static_cast<int>(dtype)];
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t round_up(std::int64_t a, std::int64_t multiple) {
  return ceil_div(a, multiple) * multiple;
}

}  // namespace sc
