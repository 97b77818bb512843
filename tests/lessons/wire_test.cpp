// Tests that the bytes that MPI really sent in a step, counted below all of our code, are those of the
// communication plan.
#include "lessons/01_data_parallel/data_parallel.h"
#include "lessons/02_zero1/zero1.h"
#include "lessons/03_zero2/zero2.h"
#include "lessons/04_zero3/zero3.h"
#include "lessons/07_pipeline/pipeline.h"
#include "lessons/10_tensor_parallel/tensor_parallel.h"
#include "lessons/12_context_parallel/context_parallel.h"
#include "tests/lessons/wire_support.h"

namespace sc {
namespace {

using test::for_each_precision, test::RankOf;

template <Lesson S>
void expect_steps_send_what_is_planned(const Workload& workload, const typename S::Options& options) {
  RankOf<S> rank(workload, options);
  for (const std::int64_t step : {0, 1}) {
    const test::WireCount sent = rank.count_step(step);
    EXPECT_EQ(sent.bytes, moved_bytes(rank.plan, Way::wire, rank.shape.rank).value()) << "step " << step;
    EXPECT_EQ(sent.collectives, 0);
    EXPECT_EQ(sent.messages > 0, to_int(test::mpi_world().size()) > 1);
  }
  rank.lesson.after_step(0);
  rank.lesson.quiet();
}

TEST(WireBytes, OfDataParallelAreThePlans) {
  using By = BucketSize::By;
  for (const BucketSize bucket :
       {BucketSize{By::tensor}, BucketSize{By::unit}, BucketSize{By::model}, BucketSize{By::elements, 977}})
    for (const bool overlap : {true, false}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(bucket.by)) + (overlap ? " overlap" : " after"));
      expect_steps_send_what_is_planned<DataParallel>(
          test::odd_workload(), {.bucket = bucket, .overlap = overlap, .verify_replicas = 1});
    }
}

TEST(WireBytes, OfZero1AreThePlans) {
  for_each_precision([](const Workload& w) {
    for (const bool overlap : {true, false})
      expect_steps_send_what_is_planned<Zero1>(w, {.overlap = overlap});
  });
}

TEST(WireBytes, OfZero2AreThePlans) {
  for_each_precision([](const Workload& w) {
    for (const std::int64_t bucket : {0, 977, 1'000'000}) {
      SCOPED_TRACE(bucket);
      for (const bool overlap : {true, false})
        expect_steps_send_what_is_planned<Zero2>(w, {.bucket = bucket, .overlap = overlap});
    }
  });
}

TEST(WireBytes, OfZero3AreThePlans) {
  for_each_precision([](const Workload& w) {
    for (const std::int64_t persist_below : {0, 21, 500, 100'000}) {
      SCOPED_TRACE(persist_below);
      for (const std::int64_t prefetch : {0, 1, 5})
        expect_steps_send_what_is_planned<Zero3>(w, {.prefetch = prefetch, .persist_below = persist_below});
    }
    expect_steps_send_what_is_planned<Zero3>(w, {.reshard_after_forward = false});
    expect_steps_send_what_is_planned<Zero3>(w, {.shard_ranks = 1});
  });
}

// Between two stages every micro-batch's activation and its gradient travel. The tied matrix has a copy on
// the first stage and on the last, whose gradients are summed once a step.
TEST(WireBytes, OfAPipelineAreThePlans) {
  for_each_precision([](const Workload& w) {
    for (const char* schedule : {"naive", "gpipe", "1f1b", "zb_h1"})
      expect_steps_send_what_is_planned<Pipeline>(w, {.schedule = schedule, .verify_replicas = 1});
  });
}

// Ranks have one and two heads of five, a run of tokens that begins inside a row, and a shorter chunk.
TEST(WireBytes, OfTensorRanksAreThePlans) {
  for_each_precision([](Workload w) {
    w.model.heads = 5;
    w.batch = {.sequence = 12, .global = 8, .micro = 2};
    for (const TokenShare tokens : {TokenShare::split, TokenShare::whole})
      for (const NormsForBackward gathered : {NormsForBackward::again, NormsForBackward::kept})
        for (const int lanes : {1, 2})
          expect_steps_send_what_is_planned<TensorParallel>(
              w, {.tokens = tokens, .gathered = gathered, .lanes = lanes, .verify_replicas = 1});
    w.activations = Activations::recompute;
    expect_steps_send_what_is_planned<TensorParallel>(w, {});
  });
}

TEST(WireBytes, OfContextRanksAreThePlans) {
  for_each_precision([](Workload w) {
    w.model.context = 24;
    w.batch = {.sequence = 24, .global = 4, .micro = 2};
    for (const Parts parts : {Parts::zigzag, Parts::contiguous}) {
      expect_steps_send_what_is_planned<ContextParallel>(w, {.parts = parts, .verify_replicas = 1});
      for (const KeysForBackward gathered : {KeysForBackward::again, KeysForBackward::kept})
        expect_steps_send_what_is_planned<ContextParallel>(
            w, {.parts = parts, .exchange = Exchange::gather, .gathered = gathered});
    }
    w.activations = Activations::recompute;
    expect_steps_send_what_is_planned<ContextParallel>(w, {});
  });
}

// An inner stage sends 2 M messages over each boundary, and for the norm four numbers. V d elements travel
// between the two ends alone: nothing that an inner stage sends is larger than a message.
TEST(WireBytes, OfAnInnerStageAreMessagesAlone) {
  const int stages = to_int(test::mpi_world().size()), stage = to_int(test::mpi_world().rank());
  if (stages < 3) GTEST_SKIP() << "with two stages both are ends";
  const Workload w = test::odd_workload();
  const std::int64_t message = w.batch.micro * w.batch.sequence * w.model.width * 4,
                     M = w.batch.global / w.batch.micro;
  RankOf<Pipeline> rank(w, {});
  const test::WireCount sent = rank.count_step(0);
  rank.lesson.quiet();
  const bool inner = stage > 0 && stage + 1 < stages;
  const std::int64_t of_the_norm =
      wire_bytes({CommKind::all_reduce, DType::f64, Elements(4), WorldSize{stages}}, Rank{stage}).value();
  const std::int64_t tied =
      w.model.vocab_padded() * w.model.width * 4;  // of two ranks each sends what it has
  EXPECT_EQ(sent.bytes, (inner ? 2 : 1) * M * message + of_the_norm + (inner ? 0 : tied));
  if (inner) {
    EXPECT_EQ(sent.largest, message);
  }
}

}  // namespace
}  // namespace sc
