// Tests lesson 10 on every number of ranks and in every mode: it ends with the bits of lesson 00 that
// computes in parts, having held and sent what its plan says; and it trains as one device does. Its weights
// and checkpoints are the whole model's.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "common/strategy/weights.h"
#include "lessons/10_tensor_parallel/tensor_parallel.h"
#include "lessons/reference/reference_order.h"
#include "tests/storage/temp_dir.h"
#include "tests/support/answers.h"
#include "tests/support/fake_strategy.h"
#include "tests/support/harness.h"

namespace sc {
namespace {

constexpr std::int64_t kTensorSteps = 3;

/// A workload with five heads of 4 elements, of which no two or more ranks have equally many; a part of the
/// vocabulary that is padding alone; an odd number of micro-batches, whose rows a rank's run of tokens
/// crosses on three ranks.
Workload five_heads() {
  Workload w = test::odd_workload();
  w.model.heads = 5;
  w.batch = {.sequence = 12, .global = 6, .micro = 2};
  return w;
}

test::RankResult in_parts(const Workload& w, int ranks, const TensorParallelOptions& options) {
  const ReduceOrder order{.tensor_ranks = ranks, .lanes = options.lanes, .tokens = options.tokens};
  return test::run_local<ReferenceOrder>(1, w, order, kTensorSteps).at(0);
}

void expect_tensor_equals(const Workload& w, int ranks, const TensorParallelOptions& options,
                          const test::Wrap& wrap = {}) {
  SCOPED_TRACE(std::to_string(ranks) + (options.tokens == TokenShare::split ? " split" : " whole"));
  const test::RankResult expected = in_parts(w, ranks, options);
  test::expect_equals_reference(test::run_local<TensorParallel>(ranks, w, options, kTensorSteps, wrap),
                                expected);
}

TEST(TensorParallel, EqualsOneDeviceThatComputesInParts) {
  for (const int ranks : {2, 3, 4})
    for (const TokenShare tokens : {TokenShare::split, TokenShare::whole})
      expect_tensor_equals(five_heads(), ranks, {.tokens = tokens});
}

TEST(TensorParallel, WhateverIsKeptAndTied) {
  for (const Activations activations :
       {Activations::keep, Activations::recompute_gelu, Activations::recompute})
    for (const bool tied : {true, false})
      for (const NormsForBackward gathered : {NormsForBackward::again, NormsForBackward::kept}) {
        Workload w = five_heads();
        w.activations = activations;
        w.model.tied = tied;
        w.head_chunk = tied ? 5 : 4096;
        SCOPED_TRACE(std::to_string(static_cast<int>(activations)) + (tied ? " tied" : " untied"));
        expect_tensor_equals(w, 3, {.gathered = gathered});
        expect_tensor_equals(w, 2, {.tokens = TokenShare::whole, .gathered = gathered});
      }
}

// Two micro-batches take turns. Gradients still add up in their order, but both heads come before both
// embeddings.
TEST(TensorParallel, LanesTakeTurns) {
  for (const Activations activations :
       {Activations::keep, Activations::recompute_gelu, Activations::recompute}) {
    Workload w = five_heads();
    w.activations = activations;
    w.model.tied = activations != Activations::keep;
    w.batch.global = 8;
    expect_tensor_equals(w, 3, {.lanes = 2}, test::delayed);
    expect_tensor_equals(w, 2, {.tokens = TokenShare::whole, .lanes = 2}, test::delayed);
    expect_tensor_equals(w, 2, {.gathered = NormsForBackward::kept, .lanes = 2});
  }
}

TEST(TensorParallel, ClipsByTheWholeGradientsNorm) {
  Workload w = five_heads();
  w.optim.clip = 1e-3;
  for (const TokenShare tokens : {TokenShare::split, TokenShare::whole})
    expect_tensor_equals(w, 4, {.tokens = tokens});
}

TEST(TensorParallel, SixteenBits) {
  Workload w = five_heads();
  w.precision = {.dtype = DType::bf16, .grad_dtype = DType::bf16, .reduce_dtype = DType::bf16};
  expect_tensor_equals(w, 3, {});
  w.precision.grad_dtype = w.precision.reduce_dtype = DType::f32;
  expect_tensor_equals(w, 2, {.tokens = TokenShare::whole});
}

// Random delays would show whoever reads or writes what still travels.
TEST(TensorParallel, DelaysChangeNothing) {
  for (int again = 0; again < 5; ++again)
    for (const TokenShare tokens : {TokenShare::split, TokenShare::whole})
      expect_tensor_equals(five_heads(), 3, {.tokens = tokens}, test::delayed);
}

// As traces draw it, and as the message of a hang says where a rank is. Of two lanes the front one says it.
TEST(TensorParallel, SaysWhatItComputes) {
  Workload w = five_heads();
  w.model.layers = 2;
  w.batch.global = 4;
  const test::RankResult two = test::run_local<TensorParallel>(2, w, {.lanes = 2}, 2)[1];
  EXPECT_EQ(test::passes_marked(two),
            "forward of unit 0, micro-batch 1; forward of unit 1, micro-batch 1; "
            "forward of unit 2, micro-batch 1; head of unit 3, micro-batch 1; "
            "backward of unit 2, micro-batch 1; backward of unit 1, micro-batch 1; "
            "embed_backward of unit 0, micro-batch 1");
  EXPECT_EQ(test::units_updated(two), (std::vector<int>{0, 0, 1, 1, 2, 2, 3}));
  EXPECT_EQ(two.came_to,
            (std::vector<std::string>{"forward of the embedding", "forward of block 1's attention",
                                      "forward of block 1's MLP", "forward of block 2's attention",
                                      "forward of block 2's MLP", "the head", "backward of block 2's MLP",
                                      "backward of block 2's attention", "backward of block 1's MLP",
                                      "backward of block 1's attention", "backward of the embedding",
                                      "the sum of what every rank has", "the norm"}));
}

TEST(TensorParallel, TrainsAsOneDeviceDoes) {
  const Workload w = five_heads();
  const test::RankResult one = test::run_local<ReferenceOrder>(1, w, {}, kTensorSteps).at(0);
  for (const int ranks : {1, 4})
    for (const TokenShare tokens : {TokenShare::split, TokenShare::whole}) {
      const test::RankResult parts =
          test::run_local<TensorParallel>(ranks, w, {.tokens = tokens}, kTensorSteps).at(0);
      for (std::size_t step = 0; step < kTensorSteps; ++step) {
        EXPECT_NEAR(parts.losses[step], one.losses[step], 1e-5);
        EXPECT_NEAR(parts.norms[step], one.norms[step], 1e-5 * one.norms[step]);
      }
    }
}

// --- weights -----------------------------------------------------------------------------------------------

std::string bytes_of_file(const Path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Trains from the weights in `from` (empty: the seed's), and saves the result.
template <Lesson S>
void train(int world, const typename S::Options& options, const Path& from, const Path& to) {
  const auto begins = [&](const RunShape& /*shape*/, Strategy& strategy, const StepScalars& /*scalars*/) {
    if (!from.empty()) detail::load_weights(strategy, strategy.layout(), from.string());
  };
  const auto between = [&](Strategy& strategy, Communicator& comm, const StepScalars& /*scalars*/,
                           std::int64_t done) {
    if (done == kTensorSteps)
      detail::save_weights(strategy, strategy.layout(), comm, *posix_file_ops(), to.string(), [] {});
  };
  (void)test::run_local<S>(world, five_heads(), options, kTensorSteps, {}, {},
                           {.begins = begins, .between = between});
}

TEST(TensorParallel, SavesTheWholeModelsFileAndLoadsIt) {
  const test::TempDir dir;
  for (const int ranks : {2, 3}) {
    const Path parts = dir / ("parts" + std::to_string(ranks)), real = dir / ("real" + std::to_string(ranks));
    train<ReferenceOrder>(1, {.tensor_ranks = ranks}, {}, parts);
    train<TensorParallel>(ranks, {}, {}, real);
    EXPECT_EQ(bytes_of_file(real), bytes_of_file(parts));
    const Path parts_on = dir / "parts on", real_on = dir / "real on";
    train<ReferenceOrder>(1, {.tensor_ranks = ranks}, parts, parts_on);
    train<TensorParallel>(ranks, {}, parts, real_on);
    EXPECT_EQ(bytes_of_file(real_on), bytes_of_file(parts_on));
    EXPECT_NE(bytes_of_file(real_on), bytes_of_file(real));
  }
}

// --- what is claimed and refused ---------------------------------------------------------------------------

TEST(TensorParallel, CopiesThatPartAreNamed) {
  for (const int unit : {0, 1, 4}) {
    const auto spoil = [&](Strategy& strategy, Communicator& comm, const StepScalars& /*scalars*/,
                           std::int64_t /*done*/) {
      if (comm.rank() != Rank{2}) return;
      for (const StateSlice& slice : strategy.state())
        if (slice.purpose == Purpose::parameters && slice.segment == Segment::whole && slice.unit == unit)
          slice.write({0, 1}, at::full({1}, 7.0, at::kFloat));
    };
    try {
      (void)test::run_local<TensorParallel>(3, five_heads(), {.verify_replicas = 2}, kTensorSteps, {}, {},
                                            {.between = spoil});
      ADD_FAILURE() << "nobody noticed";
    } catch (const ClaimError& error) {
      EXPECT_EQ(error.what(), "step 1: rank 2's copy of the norms and biases of unit " +
                                  std::to_string(unit) +
                                  " differs from rank 0's: replicas must stay equal to the bit");
    }
  }
}

TEST(TensorParallel, RanksThatReadOtherRowsAreNamed) {
  const auto thrown = test::on_ranks(2, [&](Communicator& comm) {
    test::Alone<TensorParallel> rank(comm,
                                     test::shape_for(five_heads(), 2, to_int(comm.rank()), CommBackend::local,
                                                     Mesh(WorldSize(2), {{Axis::tensor, 2}})),
                                     {.verify_replicas = 1}, 1e-2);
    const std::vector<Batch> batches = test::made_up_step(rank.shape, to_int(comm.rank()));
    rank.lesson.train_step(batches);
    rank.lesson.after_step(0);
  });
  for (const std::exception_ptr& error : thrown) {
    try {
      ASSERT_TRUE(error) << "nobody noticed";
      std::rethrow_exception(error);
    } catch (const ClaimError& claim) {
      EXPECT_STREQ(claim.what(),
                   "step 0: rank 1 reads other tokens than rank 0: all tensor ranks need the same rows");
    }
  }
}

TEST(TensorParallel, RefusesWhatCannotBeShared) {
  const auto refused = [](const Workload& w, int ranks, const TensorParallelOptions& options) {
    return test::input_error([&] {
      (void)TensorParallelPlans(options).memory_plan(
          test::shape_for(w, ranks, 0, CommBackend::local, Mesh(WorldSize(ranks), {{Axis::tensor, ranks}})));
    });
  };
  Workload w = five_heads(), six_rows = w;
  six_rows.batch.micro = 6;
  test::expect_texts(
      {{refused(six_rows, 5, {}),
        "64|batch.micro: 6 rows of 12 tokens cannot be shared evenly by 5 tensor ranks|--set "
        "batch.micro=10, or --set tokens=whole"},
       {refused(w, 5, {.tokens = TokenShare::whole}), "no InputError"},
       {refused(w, 2, {.lanes = 2}),
        "64|lanes: two lanes take turns with a micro-batch each, and a step has 3 micro-batches|--set "
        "batch.micro=1, or "
        "--set lanes=1"},
       {refused(w, 6, {}),
        "64|model.heads: 5 heads cannot be shared by 6 tensor ranks: each has at least one|at most 5 of "
        "them, or --set model.heads=6 or more that divide model.width"}});
}

}  // namespace
}  // namespace sc
