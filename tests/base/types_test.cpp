#include "common/base/types.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/support/answers.h"

namespace sc {
namespace {

template <class A, class B>
concept Addable = requires(A a, B b) {
  a + b;
};
template <class A, class B>
concept Comparable = requires(A a, B b) {
  a < b;
};
static_assert(Addable<Bytes, Bytes>);
static_assert(!Addable<Bytes, Elements>);
static_assert(!Addable<Bytes, int>);
static_assert(!Comparable<Bytes, Elements>);
static_assert(!Comparable<Rank, WorldSize>);

TEST(Types, ArithmeticOfOneKind) {
  Bytes sum(3);
  sum += Bytes(4);
  EXPECT_EQ(sum, Bytes(7));
  sum -= Bytes(2);
  EXPECT_EQ(sum * 2, Bytes(10));
  EXPECT_EQ(2 * sum, Bytes(10));
  EXPECT_EQ(Bytes(7) / 2, Bytes(3));
  EXPECT_EQ(Bytes(7) - Bytes(9), Bytes(-2));
  EXPECT_LT(Bytes(1), Bytes(2));
  EXPECT_EQ(to_int(Rank(3)), 3);
  EXPECT_EQ(to_int(WorldSize(4)), 4);
}

TEST(Types, DtypesHaveTheirNamesAndSizes) {
  const std::map<DType, std::pair<std::string, Bytes>> dtypes = {
      {DType::f64, {"f64", Bytes(80)}}, {DType::i64, {"i64", Bytes(80)}},   {DType::f32, {"f32", Bytes(40)}},
      {DType::i32, {"i32", Bytes(40)}}, {DType::bf16, {"bf16", Bytes(20)}}, {DType::f16, {"f16", Bytes(20)}},
      {DType::u8, {"u8", Bytes(10)}}};
  for (const auto& [dtype, of_ten] : dtypes) {
    EXPECT_EQ(name_of(dtype), of_ten.first);
    EXPECT_EQ(bytes_of(Elements(10), dtype), of_ten.second) << of_ten.first;
  }
}

TEST(Types, RoundingUp) {
  test::expect_counts({{ceil_div(0, 4), 0},
                       {ceil_div(1, 4), 1},
                       {ceil_div(4, 4), 1},
                       {ceil_div(5, 4), 2},
                       {round_up(50257, 128), 50304},
                       {round_up(128, 128), 128}});
}

}  // namespace
}  // namespace sc
