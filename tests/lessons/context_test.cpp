// Lesson 12 on every number of ranks and in every mode ends where lesson 00 does that computes attention in
// the same calls, to the bit, having held and sent what its plan says; and trains as one device does.
#include <gtest/gtest.h>

#include "lessons/12_context_parallel/context_parallel.h"
#include "lessons/reference/reference_order.h"
#include "tests/storage/temp_dir.h"
#include "tests/support/answers.h"
#include "tests/support/harness.h"

namespace sc {
namespace {

constexpr std::int64_t kContextSteps = 3;

/// Rows that 1 to 4 ranks cut into equal chunks, in both ways; an odd number of micro-batches.
Workload rows_of_24() {
  Workload w = test::odd_workload();
  w.model.context = 30;
  w.batch = {.sequence = 24, .global = 6, .micro = 2};
  return w;
}

test::RankResult one_device(const Workload& w, int ranks, const ContextParallelOptions& options) {
  const ReduceOrder order{.context_ranks = ranks, .parts = options.parts, .exchange = options.exchange};
  return test::run_local<ReferenceOrder>(1, w, order, kContextSteps).at(0);
}

void expect_context_equals(const Workload& w, int ranks, const ContextParallelOptions& options,
                           const test::Wrap& wrap = {}) {
  SCOPED_TRACE(std::to_string(ranks) + (options.parts == Parts::zigzag ? " zigzag" : " contiguous") +
               (options.exchange == Exchange::ring ? " ring" : " gather"));
  const test::RankResult expected = one_device(w, ranks, options);
  test::expect_equals_reference(test::run_local<ContextParallel>(ranks, w, options, kContextSteps, wrap),
                                expected);
}

template <class F>
void for_each_exchange(const F& f) {
  for (const Parts parts : {Parts::zigzag, Parts::contiguous})
    for (const Exchange exchange : {Exchange::ring, Exchange::gather})
      f(ContextParallelOptions{.parts = parts, .exchange = exchange});
}

TEST(ContextParallel, EqualsOneDeviceWithTheSameCalls) {
  for (const int ranks : {2, 3, 4})
    for_each_exchange(
        [&](const ContextParallelOptions& options) { expect_context_equals(rows_of_24(), ranks, options); });
}

TEST(ContextParallel, WhateverIsKeptAndTied) {
  for (const Activations activations :
       {Activations::keep, Activations::recompute_gelu, Activations::recompute})
    for (const bool tied : {true, false}) {
      Workload w = rows_of_24();
      w.activations = activations;
      w.model.tied = tied;
      w.head_chunk = tied ? 5 : 4096;
      SCOPED_TRACE(std::to_string(static_cast<int>(activations)) + (tied ? " tied" : " untied"));
      expect_context_equals(w, 3, {});
      expect_context_equals(w, 2, {.exchange = Exchange::gather, .gathered = KeysForBackward::kept});
    }
}

TEST(ContextParallel, SixteenBits) {
  Workload w = rows_of_24();
  w.precision = {.dtype = DType::bf16, .grad_dtype = DType::f32, .reduce_dtype = DType::f32};
  for_each_exchange([&](const ContextParallelOptions& options) { expect_context_equals(w, 3, options); });
}

TEST(ContextParallel, ClipsByTheWholeGradientsNorm) {
  Workload w = rows_of_24();
  w.optim.clip = 1e-3;
  expect_context_equals(w, 4, {});
}

// Nobody may write what still travels, or read what still comes.
TEST(ContextParallel, DelaysChangeNothing) {
  for (int again = 0; again < 5; ++again)
    for_each_exchange([&](const ContextParallelOptions& options) {
      expect_context_equals(rows_of_24(), 3, options, test::delayed);
    });
}

TEST(ContextParallel, TrainsAsOneDeviceDoes) {
  const Workload w = rows_of_24();
  const test::RankResult one = test::run_local<ReferenceOrder>(1, w, {}, kContextSteps).at(0);
  for (const int ranks : {1, 4})
    for_each_exchange([&](const ContextParallelOptions& options) {
      const test::RankResult shared =
          test::run_local<ContextParallel>(ranks, w, options, kContextSteps).at(0);
      for (std::size_t step = 0; step < kContextSteps; ++step) {
        EXPECT_NEAR(shared.losses[step], one.losses[step], 1e-5);
        EXPECT_NEAR(shared.norms[step], one.norms[step], 1e-5 * one.norms[step]);
      }
    });
}

// A ring holds a rank's own keys and two that come and go, and sends one sum while another comes; who gathers
// has all ranks' at once.
TEST(ContextParallel, HoldsWhatComesAndGoes) {
  struct Held {
    int ranks;
    ContextParallelOptions options;
    std::int64_t keys, gradients;  // in rows' keys and values
  };
  const std::int64_t kept = rows_of_24().model.layers;
  for (const Held& h : std::vector<Held>{
           {1, {}, 24, 0},
           {2, {}, 2 * 12, 2 * 12},
           {3, {}, 3 * 8, 2 * 8},
           {4, {}, 3 * 6, 2 * 6},
           {2, {.exchange = Exchange::gather}, 24, 24},
           {3, {.exchange = Exchange::gather, .gathered = KeysForBackward::kept}, kept * 24, 24}}) {
    SCOPED_TRACE(h.ranks);
    const test::RankResult rank = test::run_local<ContextParallel>(h.ranks, rows_of_24(), h.options, 2)[0];
    const auto tokens_of = [&](const char* name) {
      Bytes held;
      for (const auto& [buffer, bytes] : rank.peak_by_name)
        if (buffer.name == name) held += bytes;
      return held.value() / (2 * 20 * 4) / rows_of_24().batch.micro;  // keys and values, width 20, f32
    };
    EXPECT_EQ(tokens_of("keys_values"), h.keys);
    EXPECT_EQ(tokens_of("grads_keys_values"), h.gradients);
  }
}

// As traces draw it, and as the message of a hang says where a rank is.
TEST(ContextParallel, SaysWhatItComputes) {
  Workload w = rows_of_24();
  w.model.layers = 1;
  w.batch.global = 2;
  const test::RankResult rank = test::run_local<ContextParallel>(2, w, {}, 2)[1];
  EXPECT_EQ(test::units_updated(rank), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(rank.came_to,
            (std::vector<std::string>{
                "forward of block 1's attention, hop 0", "forward of block 1's attention, hop 1",
                "backward of block 1's attention, hop 1", "backward of block 1's attention, hop 0"}));
}

TEST(ContextParallel, RefusesRowsThatChunksDoNotDivide) {
  Workload w = rows_of_24();
  w.batch.sequence = 21;
  const RunShape shape =
      test::shape_for(w, 3, 0, CommBackend::local, Mesh(WorldSize(3), {{Axis::context, 3}}));
  EXPECT_EQ(
      test::input_error([&] { (void)ContextParallelPlans(ContextParallelOptions{}).memory_plan(shape); }),
      "64|batch.sequence: 21 tokens a row cannot be cut into 6 chunks for 3 context ranks|--set "
      "batch.sequence=18, or --set parts=contiguous");
  EXPECT_NO_THROW((void)ContextParallelPlans({.parts = Parts::contiguous}).memory_plan(shape));
}

}  // namespace
}  // namespace sc
