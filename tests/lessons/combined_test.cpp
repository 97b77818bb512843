// Tests lesson 11 on every mesh: it ends with the bits of lesson 00 that computes in its order, having held
// and sent what its plan says.
#include "lessons/11_combined/combined.h"

#include <gtest/gtest.h>

#include "common/base/check.h"
#include "lessons/07_pipeline/pipeline.h"
#include "lessons/reference/reference_order.h"
#include "tests/support/answers.h"
#include "tests/support/harness.h"

namespace sc {
namespace {

constexpr std::int64_t kCombinedSteps = 3;

/// A workload with five heads, which no two or more ranks have equally many of; five blocks; an odd number of
/// micro-batches per data rank.
Workload five_heads(std::int64_t data) {
  Workload w = test::odd_workload();
  w.model.heads = 5;
  w.model.layers = 5;
  w.batch = {.sequence = 12, .global = 6 * data, .micro = 2};
  return w;
}

struct Sizes {
  int stages, data, tensor, context = 1;
};

void expect_combined_equals(const Workload& w, const Sizes& m, CombinedOptions options,
                            const test::Wrap& wrap = {}) {
  options.mesh = std::to_string(m.stages) + "x" + std::to_string(m.data) + "x" +
                 (m.context > 1 ? std::to_string(m.context) + "x" : "") + std::to_string(m.tensor);
  SCOPED_TRACE(options.mesh + " " + options.schedule + (options.warmup > 0 ? " warmup" : "") +
               (options.tokens == TokenShare::split ? " split" : " whole") +
               (options.states == ReplicaStates::whole ? " whole states" : "") +
               (w.model.tied ? " tied" : ""));
  const bool split = m.stages > 1 && w.model.tied;
  const ReduceOrder order{.virtual_ranks = m.data,
                          .tied_sum = split ? TiedSum::split : TiedSum::joint,
                          .tensor_ranks = m.tensor,
                          .tokens = m.tensor > 1 ? options.tokens : TokenShare::split,
                          .context_ranks = m.context};
  const test::RankResult expected = test::run_local<ReferenceOrder>(1, w, order, kCombinedSteps).at(0);
  test::expect_equals_reference(
      test::run_local<Combined>(m.stages * m.data * m.context * m.tensor, w, options, kCombinedSteps, wrap),
      expected);
}

TEST(Combined, EveryMeshEndsInOneOrdersBits) {
  for (const Sizes& m : {Sizes{1, 1, 1},
                         {2, 1, 1},
                         {1, 2, 1},
                         {1, 1, 2},
                         {2, 1, 2},
                         {1, 2, 2},
                         {2, 2, 1},
                         {2, 2, 2},
                         {1, 1, 4},
                         {3, 1, 2},
                         {1, 3, 2}})
    for (const bool tied : {true, false}) {
      Workload w = five_heads(m.data);
      w.model.tied = tied;
      expect_combined_equals(w, m, {.states = ReplicaStates::whole});
      expect_combined_equals(w, m, {});
    }
}

TEST(Combined, TheContextAxisToo) {
  for (const Sizes& m : {Sizes{1, 1, 2, 2}, {2, 1, 1, 2}, {1, 2, 1, 2}, {2, 1, 2, 2}, {1, 1, 1, 3}})
    for (const bool tied : {true, false}) {
      Workload w = five_heads(m.data);
      w.model.tied = tied;
      expect_combined_equals(w, m, {.states = tied ? ReplicaStates::whole : ReplicaStates::sharded});
    }
  Workload w = five_heads(1);
  w.activations = Activations::recompute;
  expect_combined_equals(w, {2, 1, 2, 2}, {.tokens = TokenShare::whole}, test::delayed);
  w.batch.global = 8;
  EXPECT_THROW(expect_combined_equals(w, {2, 1, 1, 2}, {.schedule = "zb_h1"}), InputError);
  w.activations = Activations::keep;
  expect_combined_equals(w, {2, 1, 1, 2}, {.schedule = "zb_h1"});
}

TEST(Combined, WhateverIsKeptAndWhole) {
  for (const Activations activations : {Activations::recompute_gelu, Activations::recompute}) {
    Workload w = five_heads(2);
    w.activations = activations;
    expect_combined_equals(w, {2, 2, 2}, {});
    expect_combined_equals(w, {2, 2, 2}, {.tokens = TokenShare::whole});
  }
  Workload w = five_heads(1);
  w.optim.clip = 1e-3;
  expect_combined_equals(w, {2, 1, 3}, {.tokens = TokenShare::whole});
}

TEST(Combined, EverySchedule) {
  Workload w = five_heads(1);
  for (const char* schedule : {"naive", "gpipe", "1f1b"})
    expect_combined_equals(w, {2, 1, 2}, {.schedule = schedule});
  for (const Sizes& m : {Sizes{2, 1, 2}, {3, 1, 2}, {2, 1, 1}}) expect_combined_equals(w, m, {.warmup = 1});
  w.model.layers = 8;
  expect_combined_equals(w, {2, 1, 2}, {.schedule = "interleaved"});
  w.batch.global = 8;
  expect_combined_equals(w, {2, 2, 1}, {.schedule = "zb_h1"});
}

// Stage 0 of two holds two micro-batches, and one more with warmup=1.
TEST(Combined, AWarmupIsOneMoreSetOfActivations) {
  RunShape shape = test::shape_for(five_heads(1), 4, 0, CommBackend::local);
  shape.mesh = Mesh(shape.mesh.world(), {{Axis::stages, 2}, {Axis::tensor, 2}});
  for (const std::int64_t warmup : {0, 1})
    EXPECT_EQ(CombinedPlans({.mesh = "2x1x2", .warmup = warmup}).contents(shape).most_sets, 2 + warmup);
}

// What a page may show of its buffers, and what would need less memory.
TEST(Combined, SaysWhatOneMeshAloneHas) {
  RunShape shape = test::shape_for(five_heads(1), 2, 0, CommBackend::local);
  for (const Axis axis : {Axis::stages, Axis::tensor}) {
    shape.mesh = Mesh(WorldSize(2), {{axis, 2}});
    EXPECT_EQ(CombinedPlans({.mesh = axis == Axis::stages ? "2x1x1" : "1x1x2"}).contents(shape).cut,
              axis == Axis::tensor);
  }
  shape.workload.activations = Activations::recompute;
  shape.mesh = Mesh(WorldSize(2), {{Axis::stages, 2}});
  EXPECT_NO_THROW((void)CombinedPlans({.mesh = "2x1x1", .schedule = "zb_h1"}).memory_plan(shape));
  for (const std::int64_t warmup : {0, 1}) {
    EXPECT_EQ(CombinedPlans({.warmup = warmup}).facts(shape).smaller.front() == "warmup=0", warmup > 0);
    EXPECT_EQ(PipelinePlans({.warmup = warmup}).facts(shape).smaller.front() == "warmup=0", warmup > 0);
  }
}

// On four GPUs a graph that held messages between stages and a tensor group's sums hung for ever.
TEST(Combined, NoGraphHoldsStagesOfTensorGroups) {
  for (const Sizes& m : {Sizes{2, 1, 2}, {2, 2, 2}, {1, 2, 2}, {2, 2, 1}, {1, 1, 2}, {2, 1, 1}}) {
    RunShape shape;
    shape.mesh =
        Mesh(WorldSize(m.stages * m.data * m.tensor), {{Axis::stages, m.stages}, {Axis::tensor, m.tensor}});
    EXPECT_EQ(CombinedPlans(CombinedOptions{}).facts(shape).no_graph.empty(), m.stages == 1 || m.tensor == 1);
  }
}

TEST(Combined, PutsOffNoWeightsOfTensorRanks) {
  RunShape shape = test::shape_for(five_heads(1), 4, 0, CommBackend::local,
                                   Mesh(WorldSize{4}, {{Axis::stages, 2}, {Axis::tensor, 2}}));
  EXPECT_THROW((void)CombinedPlans({.mesh = "2x1x2", .schedule = "zb_h1"}).memory_plan(shape), InputError);
}

// Neighbours share matrices, then two stages the layers; data groups take the rest.
TEST(Combined, WithoutAMeshTensorRanksComeFirst) {
  const auto of = [](int world) {
    const Mesh mesh = mesh_of({}, WorldSize{world});
    return std::vector<std::int64_t>{mesh.size(Axis::stages), mesh.size(Axis::data), mesh.size(Axis::tensor)};
  };
  test::expect_each<std::vector<std::int64_t>>({{of(3), (std::vector<std::int64_t>{1, 3, 1})},
                                                {of(6), (std::vector<std::int64_t>{1, 3, 2})},
                                                {of(12), (std::vector<std::int64_t>{2, 3, 2})}});
}

TEST(Combined, DelaysChangeNothing) {
  for (int again = 0; again < 3; ++again)
    expect_combined_equals(five_heads(2), {2, 2, 2}, {.warmup = again % 2}, test::delayed);
}

}  // namespace
}  // namespace sc
