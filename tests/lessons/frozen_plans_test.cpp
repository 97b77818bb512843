// Plans must hold what they held at commit cebaddd, to the byte: 200 shapes, each with the bytes of every
// buffer name. frozen_plans.txt was written there once; nothing writes it again. A plan and what a run takes
// come from one declaration, so only this file, the published formulas and the allocator can notice a wrong
// size.
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "common/config/workload_table.h"
#include "common/run/surroundings.h"
#include "lessons/plans.h"

namespace sc::test {
namespace {

/// A line of the file: lesson and settings, ranks and device, workload, buffers ("purpose, place, name =
/// bytes; ...").
struct Frozen {
  std::vector<std::string> lesson, run, workload;
  std::string buffers;
};

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

std::vector<Frozen> frozen_plans() {
  std::vector<Frozen> all;
  std::ifstream file("tests/lessons/frozen_plans.txt");
  for (std::string line; std::getline(file, line);) {
    std::istringstream columns(line);
    std::string lesson, run, workload, buffers;
    std::getline(columns, lesson, '\t'), std::getline(columns, run, '\t');
    std::getline(columns, workload, '\t'), std::getline(columns, buffers, '\t');
    all.push_back({words_of(lesson), words_of(run), words_of(workload), buffers});
  }
  return all;
}

/// The shape for words such as "4 1 nccl": the number of ranks, the rank, and the communicator, which implies
/// the device.
RunShape shape_of(const Frozen& frozen, const Plans& plans) {
  RunShape shape;
  const FieldSet fields = workload_fields().bind(shape.workload);
  set_all(fields, frozen.workload);
  resolve_dtypes(shape.workload.precision);
  const WorldSize world{std::stoi(frozen.run[0])};
  shape.mesh = plans.mesh(world);
  shape.rank = Rank{std::stoi(frozen.run[1])};
  for (const CommBackend backend :
       {CommBackend::local, CommBackend::mpi, CommBackend::nccl, CommBackend::staged})
    if (name_of(backend) == frozen.run.at(2)) shape.comm = backend;
  if (shape.comm == CommBackend::nccl || shape.comm == CommBackend::staged) {
    shape.device = DeviceKind::cuda;
    shape.ops = OpsBackend::fused;
  }
  return shape;
}

std::string buffers_of(const Frozen& frozen) {
  const StrategyPlans strategy =
      lesson_plans_of(frozen.lesson[0], {frozen.lesson.begin() + 1, frozen.lesson.end()});
  const RunShape shape = shape_of(frozen, *strategy.plans);
  MemoryPlan plan = strategy.plans->memory_plan(shape);
  detail::plan_surroundings(shape, plan);
  std::string text;
  for (const auto& [buffer, bytes] : plan.by_name())
    text += std::string(name_of(buffer.purpose)) + ", " + std::string(name_of(buffer.place)) + ", " +
            buffer.name + " = " + std::to_string(bytes.value()) + "; ";
  return text;
}

TEST(FrozenPlans, HoldWhatTheyHeld) {
  const std::vector<Frozen> all = frozen_plans();
  ASSERT_EQ(all.size(), 200U);
  for (const Frozen& frozen : all) {
    std::string what;
    for (const auto* words : {&frozen.lesson, &frozen.run, &frozen.workload})
      for (const std::string& word : *words) what += word + " ";
    EXPECT_EQ(buffers_of(frozen), frozen.buffers) << what;
  }
}

/// What a page may show of a rank of four: how much of parameters and states it keeps, the most that is whole
/// at a time, and a stage's parts by their first and last units.
std::string may_show(const std::string& lesson, const std::vector<std::string>& settings, int layers,
                     const std::string& rank = "0") {
  const StrategyPlans strategy = lesson_plans_of(lesson, settings);
  Frozen frozen;
  frozen.run = {"4", rank, "local"};
  frozen.workload = {"batch.global=16", "batch.micro=1", "model.layers=" + std::to_string(layers)};
  const Contents contents = strategy.plans->contents(shape_of(frozen, *strategy.plans));
  if (!contents.unknown.empty()) return contents.unknown;
  std::string text = std::string(name_of(contents.parameters)) + ", " + std::string(name_of(contents.states));
  for (const auto& [name, most] : {std::pair(", gradients ", contents.most_gradients),
                                   {", parameters ", contents.most_parameters},
                                   {", sets ", contents.most_sets},
                                   {", versions ", contents.most_versions}})
    if (most) text += name + std::to_string(*most);
  for (const UnitRange& part : contents.parts)
    text += ", units " + std::to_string(part.first) + "-" + std::to_string(part.last);
  return text;
}

TEST(Contents, AreWhatBuffersHold) {
  const std::vector<std::array<std::string, 2>> texts = {
      {may_show("03_zero2", {}, 1), "slice, slice, gradients 3"},
      {may_show("03_zero2", {}, 3), "slice, slice, gradients 4"},
      {may_show("03_zero2", {"bucket=5000"}, 3), "a bucket carries gradients of several units"},
      {may_show("04_zero3", {"prefetch=0"}, 3), "slice, slice, gradients 4, parameters 3"},
      {may_show("04_zero3", {"persist_below=9"}, 3), "with persist_below a part of a unit is always whole"},
      {may_show("05_offload", {}, 3), "slice, slice, gradients 4"},
      {may_show("05_offload", {"parameters=sharded"}, 3), "slice, slice, gradients 4, parameters 4"},
      {may_show("07_pipeline", {"split=uniform"}, 8), "whole, whole, sets 4, versions 1, units 0-2"},
      {may_show("07_pipeline", {"split=uniform"}, 8, "3"), "whole, whole, sets 1, versions 1, units 7-9"},
      {may_show("07_pipeline", {"schedule=interleaved"}, 8),
       "whole, whole, sets 11, versions 1, units 0-1, units 5-5"},
      {may_show("07_pipeline", {"replicas=2", "states=sharded", "split=uniform"}, 6),
       "whole, slice, sets 2, versions 1, units 0-3"},
  };
  for (const auto& [found, expected] : texts) EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace sc::test
