// Tests that on a mesh of eight ranks the bytes of every group, counted below all of our code by MPI's
// communicators, equal the plan's: each axis has its own, and no group sends another group's.
#include <map>
#include <tuple>

#include "lessons/07_pipeline/pipeline.h"
#include "lessons/11_combined/combined.h"
#include "tests/lessons/wire_support.h"

namespace sc {
namespace {

using test::for_each_precision, test::RankOf, test::SentOver;

/// The planned bytes of every group's collectives, and of the messages, which have the world's ranks.
std::vector<SentOver> planned_by_communicator(const CommPlan& plan, const RunShape& shape) {
  std::map<std::tuple<bool, int, int>, CommPlan> parts;  // whether messages, how many ranks, how far apart
  for (const auto& [op, times] : plan.count) {
    const bool message = op.kind == CommKind::send || op.kind == CommKind::recv;
    parts[{message, to_int(op.ranks), op.stride}].add(op, times);
  }
  std::vector<SentOver> all;
  for (const auto& [group, of_group] : parts) {
    const auto [message, count, stride] = group;
    const int rank = to_int(shape.rank), first = rank - rank / stride % count * stride;
    SentOver& over = all.emplace_back();
    for (int i = 0; i < count; ++i) over.ranks.push_back(first + i * stride);
    over.bytes = moved_bytes(of_group, Way::wire, shape.rank).value();
    if (over.bytes == 0) all.pop_back();
  }
  std::ranges::sort(all);
  return all;
}

std::string in_words(const std::vector<SentOver>& all) {
  std::string text;
  for (const SentOver& over : all) {
    text += std::to_string(over.bytes) + " over";
    for (const int rank : over.ranks) text += " " + std::to_string(rank);
    text += "\n";
  }
  return text;
}

/// Runs a step and compares. `groups` is the number that a rank of the first stage, which is an end, sends
/// over.
template <Lesson S>
void expect_groups_send_what_is_planned(const Workload& workload, const typename S::Options& options,
                                        std::size_t groups) {
  RankOf<S> rank(workload, options);
  const std::vector<SentOver> planned = planned_by_communicator(rank.plan, rank.shape);
  if (rank.shape.at(Axis::stages) == 0) {
    EXPECT_EQ(planned.size(), groups) << in_words(planned);
  }
  for (const std::int64_t step : {0, 1}) {
    rank.count_step(step);
    EXPECT_EQ(in_words(test::wire_count_by_communicator()), in_words(planned)) << "step " << step;
  }
  rank.lesson.quiet();
}

/// A workload with five heads, which no two ranks have equally many of; five blocks; three micro-batches per
/// data rank.
Workload five_heads(std::int64_t data) {
  Workload w = test::odd_workload();
  w.model.heads = 5;
  w.model.layers = 5;
  w.batch = {.sequence = 12, .global = 6 * data, .micro = 2};
  return w;
}

// A combined mesh sends over tensor group, data group, the two ends, messages, and the world's norm.
TEST(WireBytesByGroup, OfAMeshAreThePlans) {
  for_each_precision(
      [](const Workload& w) {
        for (const ReplicaStates states : {ReplicaStates::whole, ReplicaStates::sharded})
          for (const TokenShare tokens : {TokenShare::split, TokenShare::whole})
            expect_groups_send_what_is_planned<Combined>(
                w, {.mesh = "2x2x2", .states = states, .tokens = tokens}, 5);
      },
      five_heads(2));
}

TEST(WireBytesByGroup, OfMeshesWithoutAnAxisAreThePlans) {
  expect_groups_send_what_is_planned<Combined>(five_heads(1), {.mesh = "2x1x4"}, 4);
  expect_groups_send_what_is_planned<Combined>(five_heads(4), {.mesh = "1x4x2"}, 3);
  expect_groups_send_what_is_planned<Combined>(five_heads(2), {.mesh = "4x2x1"}, 4);
}

// Each group of lesson 07's replicas sends what its plan says.
TEST(WireBytesByGroup, OfAPipelinesReplicasAreThePlans) {
  for (const ReplicaStates states : {ReplicaStates::whole, ReplicaStates::sharded})
    expect_groups_send_what_is_planned<Pipeline>(five_heads(2), {.replicas = 2, .states = states}, 4);
}

}  // namespace
}  // namespace sc
