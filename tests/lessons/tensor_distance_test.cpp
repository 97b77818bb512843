// Outside truth for what lessons 00 and 10 share: every named gradient of tensor ranks is at most twice as
// far from fp64 as one device's. Both distances are measured here: a constant would be too wide for one model
// and too narrow for another.
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "common/model/cut_places.h"
#include "lessons/10_tensor_parallel/tensor_parallel.h"
#include "lessons/12_context_parallel/context_parallel.h"
#include "lessons/reference/reference_order.h"
#include "tests/model/autograd_model.h"
#include "tests/support/harness.h"

namespace sc {
namespace {

using Gradients = std::map<std::string, at::Tensor>;  // whole tensors by name

/// A model as after some training: initial biases are 0, which stays right even if they are added several
/// times.
std::unique_ptr<Model> trained(const Workload& w) {
  const c10::InferenceMode inference;
  RunShape run;
  run.workload = w;
  auto model = std::make_unique<Model>(run, WorldSize{1}, 0, w.seed);
  model->for_each_tensor([&](int unit, const std::string& name) {
    at::Tensor param = model->param(unit, name).view({-1});
    if (!model->layout.find(unit, name)->decay)
      param.add_(at::arange(param.numel(), at::kFloat).mul_(0.7).add_(unit).sin_(), 0.1);
  });
  return model;
}

/// The gradients by LibTorch's autograd in fp64 over ATen's operations.
Gradients exact(const Workload& w, const Model& model) {
  const c10::InferenceMode inference;
  Gradients sum;
  for (std::int64_t j = 0; j < w.batch.global / w.batch.micro; ++j) {
    const Batch batch = test::made_up_batch(w, 0, j);
    const test::AutogradResult one =
        test::autograd_step(model, batch.tokens, batch.targets, batch.scale.item<float>(), at::kDouble);
    for (const auto& [name, gradient] : one.grads)
      sum[name] = sum.contains(name) ? sum[name] + gradient : gradient;
  }
  return sum;
}

/// The gradients of a step of `model`, put together from the ranks' parts.
template <Lesson S>
Gradients of_run(const Workload& w, const Model& model, int ranks, const typename S::Options& options) {
  const ParamLayout whole(w.model, WorldSize{1});
  std::vector<at::Tensor> units;
  for (int unit = 0; unit < whole.num_units(); ++unit)
    units.push_back(at::full({whole.unit(unit).size(Segment::sharded)}, NAN, at::kFloat));
  const auto begin_there = [&](const RunShape& /*shape*/, Strategy& strategy,
                               const StepScalars& /*scalars*/) {
    for (const StateSlice& slice : strategy.state()) {
      if (slice.purpose != Purpose::parameters) continue;
      for_each_place(strategy.layout(), whole, slice.unit, slice.segment, slice.range,
                     [&](Range here, Segment /*sharded*/, std::int64_t at) {
                       slice.write(here, model.params[slice.unit].sharded.narrow(0, at, here.size()));
                     });
    }
  };
  std::mutex mutex;
  const auto collect = [&](Strategy& strategy, Communicator& /*comm*/, const StepScalars& /*scalars*/,
                           std::int64_t /*done*/) {
    const std::lock_guard lock(mutex);
    for (const StateSlice& slice : strategy.state()) {
      if (slice.purpose != Purpose::gradients) continue;
      const at::Tensor values = slice.copy();
      for_each_place(strategy.layout(), whole, slice.unit, slice.segment, slice.range,
                     [&](Range here, Segment /*sharded*/, std::int64_t at) {
                       units[static_cast<std::size_t>(slice.unit)]
                           .narrow(0, at, here.size())
                           .copy_(values.narrow(0, here.begin - slice.range.begin, here.size()));
                     });
    }
  };
  (void)test::run_local<S>(ranks, w, options, 1, {}, {}, {.begins = begin_there, .between = collect});
  Gradients gradients;
  for (int unit = 0; unit < whole.num_units(); ++unit)
    for (const ParamTensor& t : whole.unit(unit).tensors)
      gradients[t.name] = units[static_cast<std::size_t>(unit)].narrow(0, t.offset, t.numel()).view(t.shape);
  return gradients;
}

void expect_as_near_as_one_device(const Workload& w) {
  const std::unique_ptr<const Model> made = trained(w);
  const Model& model = *made;
  const Gradients truth = exact(w, model), one = of_run<ReferenceOrder>(w, model, 1, {});
  ASSERT_EQ(one.size(), truth.size());
  // A gradient of weights sums as many products as a micro-batch has tokens. Added one after another they err
  // by the root of that many roundings. One device may err less, since a BLAS adds in blocks, but not always
  // for the narrow matrices of a rank.
  const double likely = 0x1p-24 * std::sqrt(static_cast<double>(w.batch.micro * w.batch.sequence));
  const auto expect_near = [&](const Gradients& parts, const std::string& of) {
    for (const auto& [name, exact] : truth) {
      const double single = std::max(likely, relative_error(one.at(name), exact));
      EXPECT_LE(single, 1e-5) << name << ": the yardstick itself";
      EXPECT_LE(relative_error(parts.at(name), exact), 2 * single) << name << of;
    }
  };
  for (const int ranks : {2, 4}) {
    const std::string on = " on " + std::to_string(ranks) + " ranks, ";
    for (const TokenShare tokens : {TokenShare::split, TokenShare::whole})
      expect_near(of_run<TensorParallel>(w, model, ranks, {.tokens = tokens}),
                  on + (tokens == TokenShare::split ? "tokens split" : "tokens whole"));
    for (const Parts parts : {Parts::zigzag, Parts::contiguous})
      for (const Exchange exchange : {Exchange::ring, Exchange::gather})
        expect_near(of_run<ContextParallel>(w, model, ranks, {.parts = parts, .exchange = exchange}),
                    on + (parts == Parts::zigzag ? "zigzag " : "contiguous ") +
                        (exchange == Exchange::ring ? "ring" : "gather"));
  }
}

Workload model_of(std::int64_t heads, std::int64_t width, std::int64_t layers, bool tied) {
  Workload w = test::odd_workload();
  w.model = {.layers = layers, .heads = heads, .width = width, .context = 32, .vocab = 257, .tied = tied};
  w.batch = {.sequence = 32, .global = 4, .micro = 2};
  return w;
}

TEST(DistanceFromFp64, OfFiveHeads) { expect_as_near_as_one_device(model_of(5, 40, 3, true)); }
TEST(DistanceFromFp64, OfAnUntiedHead) { expect_as_near_as_one_device(model_of(4, 64, 2, false)); }
TEST(DistanceFromFp64, OfAWiderModel) { expect_as_near_as_one_device(model_of(8, 256, 4, true)); }
TEST(DistanceFromFp64, OfLongRows) {
  Workload w = model_of(4, 32, 2, true);
  w.model.context = w.batch.sequence = 512;
  expect_as_near_as_one_device(w);
}

}  // namespace
}  // namespace sc
