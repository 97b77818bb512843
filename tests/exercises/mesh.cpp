#include "tests/exercises/mesh.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <functional>

#include "common/base/check.h"
#include "common/base/text.h"
#include "common/config/resolve.h"
#include "common/run/surroundings.h"
#include "lessons/11_combined/combined_plan.h"
#include "tests/exercises/check.h"

namespace sc::exercise {
namespace {

RunShape shape_of(const MeshCase& question, const CombinedPlans& plans) {
  RunShape shape{.workload = load_workload("configs/gpt2_1558m.json"),
                 .mesh = plans.mesh(WorldSize{kMeshRanks}),
                 .device = DeviceKind::cuda,
                 .ops = OpsBackend::fused,
                 .comm = CommBackend::nccl};
  GptConfig& model = shape.workload.model;
  model.layers = question.layers, model.heads = question.heads, model.width = question.width;
  shape.workload.batch.global = question.rows, shape.workload.batch.micro = question.micro;
  return shape;
}

void refuse_part_of_a_micro_batch(const RunShape& shape) {
  const BatchConfig& batch = shape.workload.batch;
  if (batch.global % (batch.micro * shape.mesh.size(Axis::data)) == 0) return;
  throw NotReached(fmt::format("{} rows are no whole micro-batches of {} on {} data ranks", batch.global,
                               batch.micro, shape.mesh.size(Axis::data)));
}

// The rank that `rank` sends to: in the next or previous stage, or the next of a ring of evenly spaced ranks.
int receiver_of(const Operation& op, const RunShape& shape) {
  const int rank = to_int(shape.rank), stage = kMeshRanks / static_cast<int>(shape.mesh.size(Axis::stages));
  if (op.kind == CommKind::send) return rank + (op.purpose == OpPurpose::activations ? stage : -stage);
  const int ranks = static_cast<int>(to_int(op.ranks)), place = rank / op.stride % ranks;
  return rank + ((place + 1) % ranks - place) * op.stride;
}

const char* axis_of(const Operation& op, const RunShape& shape) {
  if (op.kind == CommKind::send) return "messages between stages";
  if (op.purpose == OpPurpose::sums && op.kind == CommKind::all_reduce) return "four numbers of all ranks";
  if (to_int(op.ranks) == shape.mesh.size(Axis::tensor) && op.stride == 1) return "tensor groups";
  if (to_int(op.ranks) == shape.mesh.size(Axis::data) && op.stride == shape.mesh.size(Axis::tensor))
    return "data groups";
  return "the tied matrix's two ends";
}

void add_across(const CommPlan& plan, const RunShape& shape, std::map<std::string, Bytes>& across) {
  for (const auto& [op, count] : plan.count) {
    if (op.kind == CommKind::recv) continue;
    if (to_int(shape.rank) / kMeshNode == receiver_of(op, shape) / kMeshNode) continue;
    CommPlan one;
    one.add(op, count);
    across[axis_of(op, shape)] += moved_bytes(one, Way::wire, shape.rank);
  }
}

constexpr Bytes kWorthNaming{1'000'000};

// Sizes with their names, the largest first: "data groups 6.26 GB, ...".
std::string largest_first(std::vector<std::pair<Bytes, std::string>> parts) {
  std::ranges::sort(parts, std::greater());
  std::vector<std::string> texts;
  for (const auto& [bytes, name] : parts)
    if (bytes >= kWorthNaming) texts.push_back(fmt::format("{} {}", name, human_bytes(bytes)));
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string by_purpose(const MemoryPlan& plan) {
  std::vector<std::pair<Bytes, std::string>> parts;
  for_each_purpose(
      [&](Purpose purpose) { parts.emplace_back(plan.of(purpose), std::string(name_of(purpose))); });
  return largest_first(std::move(parts));
}

std::string by_axis(const Laid& laid) {
  std::vector<std::pair<Bytes, std::string>> parts;
  for (const auto& [axis, bytes] : laid.across) parts.emplace_back(bytes, axis);
  return largest_first(std::move(parts));
}

}  // namespace

Bytes Laid::sent() const {
  Bytes sum;
  for (const auto& [axis, bytes] : across) sum += bytes;
  return sum;
}

Laid lay(const MeshCase& question, const std::string& mesh) {
  try {
    const CombinedPlans plans({.mesh = mesh});
    RunShape shape = shape_of(question, plans);
    refuse_part_of_a_micro_batch(shape);
    Laid laid;
    laid.mesh = mesh;
    for (int rank = 0; rank < kMeshRanks; ++rank) {
      shape.rank = Rank{rank};
      MemoryPlan holds = plans.memory_plan(shape);
      detail::plan_surroundings(shape, holds);
      if (holds.total() > laid.holds.total()) laid.fullest = rank, laid.holds = holds;
      add_across(plans.comm_plan(shape), shape, laid.across);
    }
    return laid;
  } catch (const InputError& error) {
    throw NotReached(error.message());
  }
}

std::vector<Laid> all_that_fit(const MeshCase& question) {
  std::vector<Laid> found;
  for (int stages = 1; stages <= kMeshRanks; ++stages)
    for (int data = 1; stages * data <= kMeshRanks; ++data) {
      try {
        found.push_back(lay(question, fmt::format("{}x{}x{}", stages, data, kMeshRanks / (stages * data))));
      } catch (const NotReached&) {
        continue;  // sizes that do not divide
      }
    }
  std::erase_if(found, [](const Laid& laid) { return !laid.fits(); });
  std::ranges::stable_sort(found, {}, [](const Laid& laid) { return laid.sent(); });
  return found;
}

std::string missed(const MeshCase& question, const std::string& mesh) {
  try {
    const Laid laid = lay(question, mesh);
    if (!laid.fits())
      return fmt::format("{} does not fit: rank {} holds {} of {} ({})", mesh, laid.fullest,
                         human_bytes(laid.holds.total()), human_bytes(kMeshDevice), by_purpose(laid.holds));
    const Bytes least = all_that_fit(question).front().sent();
    if (laid.sent() == least) return "";
    return fmt::format("{} fits and sends {} between the nodes per step ({}); {} are possible", mesh,
                       human_bytes(laid.sent()), by_axis(laid), human_bytes(least));
  } catch (const NotReached& error) {
    return error.what();
  }
}

}  // namespace sc::exercise
