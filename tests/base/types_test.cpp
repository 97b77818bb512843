#include "common/base/types.h"

#include <gtest/gtest.h>

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

TEST(Types, ElementsBecomeBytesThroughADtype) {
  EXPECT_EQ(bytes_of(Elements(10), DType::f64), Bytes(80));
  EXPECT_EQ(bytes_of(Elements(10), DType::i64), Bytes(80));
  EXPECT_EQ(bytes_of(Elements(10), DType::f32), Bytes(40));
  EXPECT_EQ(bytes_of(Elements(10), DType::i32), Bytes(40));
  EXPECT_EQ(bytes_of(Elements(10), DType::bf16), Bytes(20));
  EXPECT_EQ(bytes_of(Elements(10), DType::f16), Bytes(20));
  EXPECT_EQ(bytes_of(Elements(10), DType::u8), Bytes(10));
}

TEST(Types, DtypesHaveTheirNames) {
  EXPECT_EQ(name_of(DType::f64), "f64");
  EXPECT_EQ(name_of(DType::f32), "f32");
  EXPECT_EQ(name_of(DType::bf16), "bf16");
  EXPECT_EQ(name_of(DType::f16), "f16");
  EXPECT_EQ(name_of(DType::i64), "i64");
  EXPECT_EQ(name_of(DType::i32), "i32");
  EXPECT_EQ(name_of(DType::u8), "u8");
}

TEST(Types, RoundingUp) {
  EXPECT_EQ(ceil_div(0, 4), 0);
  EXPECT_EQ(ceil_div(1, 4), 1);
  EXPECT_EQ(ceil_div(4, 4), 1);
  EXPECT_EQ(ceil_div(5, 4), 2);
  EXPECT_EQ(round_up(50257, 128), 50304);
  EXPECT_EQ(round_up(128, 128), 128);
}

}  // namespace
}  // namespace sc
