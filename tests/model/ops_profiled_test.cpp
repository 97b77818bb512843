// Tests the arithmetic and traffic that --profile counts for an operation, by hand.
#include "common/model/ops_profiled.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <vector>

#include "common/base/op_profile.h"

namespace sc {
namespace {

/// Notes every operation while it lives.
class Noting final : public OpProfiler {
 public:
  struct Call {
    std::string op;
    OpCost cost;
  };
  Noting() { current() = this; }
  ~Noting() override { current() = nullptr; }
  void begin(std::string_view op, const OpCost& cost) override { calls.push_back({std::string(op), cost}); }
  void end() override { ++ended; }
  std::vector<Call> calls;
  std::size_t ended = 0;
};

TEST(OpsProfiled, ProductsHaveTheirShapesAndFlops) {
  const auto ops = make_profiled_ops(make_reference_ops());
  constexpr std::int64_t kRows = 6, kIn = 4, kOut = 3;
  const at::Tensor x = at::ones({kRows, kIn}), w = at::ones({kOut, kIn}), bias = at::ones({kOut});
  at::Tensor y = at::empty({kRows, kOut}), grad_x = at::empty({kRows, kIn}), grad_w = at::empty({kOut, kIn});
  const Noting noting;
  ops->linear(x, w, bias, y);
  ops->matmul_backward_input(y, w, grad_x);
  ops->matmul_backward_weight(y, x, grad_w, Write::overwrite);
  ASSERT_EQ(noting.calls.size(), 3u);
  EXPECT_EQ(noting.ended, 3u);
  EXPECT_EQ(noting.calls[0].cost.product, (ProductShape{kRows, kOut, kIn}));
  EXPECT_EQ(noting.calls[1].cost.product, (ProductShape{kRows, kIn, kOut}));
  EXPECT_EQ(noting.calls[2].cost.product, (ProductShape{kOut, kIn, kRows}));
  for (const Noting::Call& call : noting.calls)
    EXPECT_EQ(call.cost.flops, 2.0 * kRows * kIn * kOut) << call.op;
}

// Attention has two products over half of [T, T] for each of B H heads of D: 2 x 2 x T^2 / 2 x D FLOPs per
// head; backward has five.
TEST(OpsProfiled, AttentionCountsWhatTheCausalMaskLeaves) {
  const auto ops = make_profiled_ops(make_reference_ops());
  constexpr std::int64_t kB = 2, kT = 8, kH = 3, kD = 4;
  const at::Tensor qkv = at::ones({kB, kT, 3, kH, kD}), grad = at::ones({kB, kT, kH, kD});
  at::Tensor out = at::empty({kB, kT, kH, kD}), lse = at::empty({kB, kH, kT});
  QueriesKeysValues grads = unpacked(at::empty_like(qkv));
  const Noting noting;
  ops->attention(unpacked(qkv), /*causal=*/true, out, lse);
  ops->attention_backward(grad, unpacked(qkv), /*causal=*/true, out, lse, grads);
  ASSERT_EQ(noting.calls.size(), 2u);
  const double forward = 2.0 * kB * kH * kT * kT * kD;
  EXPECT_DOUBLE_EQ(noting.calls[0].cost.flops, forward);
  EXPECT_DOUBLE_EQ(noting.calls[1].cost.flops, 2.5 * forward);
  for (const Noting::Call& call : noting.calls) EXPECT_EQ(call.cost.product, ProductShape{}) << call.op;
}

}  // namespace
}  // namespace sc
