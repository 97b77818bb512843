#include "common/run/fit.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <limits>
#include <set>

#include "common/base/check.h"
#include "common/base/text.h"
#include "common/config/workload_table.h"
#include "common/run/surroundings.h"

namespace sc {
namespace {

// The bytes that a rank may hold. A larger world is assumed to have as large a share on this machine.
Bytes limit_of(const LimitedRun& run, const RunShape& shape) {
  if (run.sharing == 0) return run.cap;
  return run.cap / ceil_div(to_int(shape.mesh.world()) * run.sharing, to_int(run.shape.mesh.world()));
}

const MemoryPlan& largest_of(const std::vector<MemoryPlan>& stages) {
  return *std::ranges::max_element(stages, {}, [](const MemoryPlan& plan) { return plan.total(); });
}

// The bytes to compare with the limit: of the largest rank if each has a limit of its own; otherwise a rank's
// part of the sum over all that share it. On the CPU the device's memory is the host's.
Bytes held_by(const LimitedRun& run, const std::vector<MemoryPlan>& stages) {
  if (run.sharing == 0) return largest_of(stages).total();
  Bytes sum;
  for (const MemoryPlan& plan : stages) {
    sum += plan.total();
    if (run.shape.device == DeviceKind::cpu) sum += plan.total(Place::pinned) + plan.total(Place::host);
  }
  return sum / static_cast<std::int64_t>(stages.size());
}

bool fits(const LimitedRun& run, const RunShape& shape, const std::vector<MemoryPlan>& stages) {
  return held_by(run, stages) <= limit_of(run, shape);
}

std::int64_t micro_batches(const RunShape& shape) {
  return shape.workload.batch.global / shape.workload.batch.micro;
}

// The shape with fewer rows per micro-batch, largest first.
std::vector<RunShape> smaller_micro_batches(const LimitedRun& run) {
  std::vector<RunShape> shapes;
  RunShape shape = run.shape;
  const std::int64_t ranks = run.shape.mesh.size(Axis::data) * run.virtual_ranks,
                     global = shape.workload.batch.global;
  for (std::int64_t micro = shape.workload.batch.micro - 1; micro >= 1; --micro) {
    shape.workload.batch.micro = micro;
    if (global % (micro * ranks) == 0) shapes.push_back(shape);
  }
  return shapes;
}

// The shape with more recomputation, the least first.
std::vector<RunShape> more_recomputed(const RunShape& from) {
  std::vector<RunShape> shapes;
  RunShape shape = from;
  for (const Activations activations : {Activations::recompute_gelu, Activations::recompute}) {
    shape.workload.activations = activations;
    if (activations > from.workload.activations) shapes.push_back(shape);
  }
  return shapes;
}

// Worlds from `from` on in which every stage has a block and ranks share a step's micro-batches evenly.
std::vector<RunShape> larger_worlds(const RunShape& shape, std::int64_t from,
                                    const std::function<Mesh(WorldSize)>& mesh) {
  std::vector<RunShape> shapes;
  RunShape larger = shape;
  larger.comm = detail::comm_backend(shape.device, shape.comm == CommBackend::staged, true);
  const GptConfig& model = shape.workload.model;
  const std::int64_t most = std::max({micro_batches(shape), model.layers, model.heads});
  for (std::int64_t world = from; world <= most; ++world) {
    try {
      larger.mesh = mesh(WorldSize{static_cast<int>(world)});
    } catch (const InputError&) {  // a mesh that is named has one world
      continue;
    }
    if (larger.mesh.size(Axis::stages) > shape.workload.model.layers || !larger.mesh.is_whole()) continue;
    if (micro_batches(shape) % larger.mesh.size(Axis::data) == 0) shapes.push_back(larger);
  }
  return shapes;
}

// The settings by which `changed` differs from `from`, as flags, each after a blank.
std::string settings(const RunShape& changed, const RunShape& from) {
  Workload w = changed.workload;
  std::string text;
  if (w.batch.micro != from.workload.batch.micro) text += fmt::format(" --set batch.micro={}", w.batch.micro);
  if (w.activations != from.workload.activations)
    text += " --set activations=" + workload_fields().bind(w).find("activations")->get();
  if (changed.mesh.world() != from.mesh.world()) text += fmt::format(" -n {}", to_int(changed.mesh.world()));
  return text;
}

// A run that may fit: the flags that ask for it, each after a blank, and its strategy; null is the run's own.
struct Candidate {
  std::string what;
  RunShape shape;
  const Plans* plans = nullptr;
};

// Adds the first candidate that fits to `changes` and returns it; null if none does.
const Candidate* add_first(const LimitedRun& run, const std::vector<Candidate>& candidates,
                           std::vector<Change>& changes) {
  for (const Candidate& of : candidates) {
    try {
      const std::vector<MemoryPlan> stages =
          of.plans == nullptr ? run.plans(of.shape) : detail::plans_of_world(*of.plans, of.shape);
      if (stages.empty() || !fits(run, of.shape, stages)) continue;
      changes.push_back({of.what.substr(1), largest_of(stages).total()});
      return &of;
    } catch (const InputError&) {  // the strategy or its settings refuse the shape
    }
  }
  return nullptr;
}

bool add_first(const LimitedRun& run, const std::vector<RunShape>& shapes, std::vector<Change>& changes) {
  std::vector<Candidate> candidates;
  for (const RunShape& shape : shapes) candidates.push_back({settings(shape, run.shape), shape});
  return add_first(run, candidates, changes) != nullptr;
}

std::string settings_of(const StrategyPlans& strategy) {
  return strategy.settings.empty() ? "" : fmt::format(" --set {}", fmt::join(strategy.settings, " --set "));
}

// Adds each strategy with the fewest ranks that it needs, if fewer than all before; or as few, along another
// axis than those. False if none fits.
bool add_strategies(const LimitedRun& run, const RunShape& from, std::vector<Change>& changes) {
  const std::size_t before = changes.size();
  std::int64_t fewest = std::numeric_limits<std::int64_t>::max();
  std::set<std::vector<Axis>> along;  // what the strategies with the fewest ranks divide
  const std::string also = settings(from, run.shape);
  for (const StrategyPlans& strategy : run.strategies) {
    const auto mesh = [&](WorldSize world) { return strategy.plans->mesh(world); };
    std::vector<Candidate> candidates;
    for (const RunShape& shape :
         larger_worlds(from, std::max<std::int64_t>(2, to_int(from.mesh.world())), mesh))
      if (const std::int64_t ranks = to_int(shape.mesh.world());
          ranks < fewest || (ranks == fewest && !along.contains(shape.mesh.axes())))
        candidates.push_back({fmt::format(" {} (lesson {}) -n {}{}{}", strategy.name,
                                          strategy.folder.substr(0, 2), ranks, settings_of(strategy), also),
                              shape, strategy.plans.get()});
    if (const Candidate* first = add_first(run, candidates, changes)) {
      const std::int64_t ranks = to_int(first->shape.mesh.world());
      if (ranks < fewest) along.clear();
      along.insert(first->shape.mesh.axes());
      fewest = ranks;
    }
  }
  return changes.size() > before;
}

// Adds strategies that fit, if necessary with as little recomputation as possible.
void add_strategies(const LimitedRun& run, std::vector<Change>& changes) {
  if (add_strategies(run, run.shape, changes)) return;
  for (const RunShape& shape : more_recomputed(run.shape))
    if (add_strategies(run, shape, changes)) return;
}

// What else would help a run that no change makes fit.
std::string or_more_of(const LimitedRun& run) {
  if (run.sharing > 0) return run.shape.device == DeviceKind::cpu ? ", or more machines" : ", or more GPUs";
  return run.one_rank_only ? "" : ", or more ranks";
}

}  // namespace

std::vector<Change> changes_that_fit(const LimitedRun& run) {
  std::vector<Change> changes;
  std::vector<Candidate> same;  // this strategy with other settings
  for (const StrategyPlans& of : run.smaller) same.push_back({settings_of(of), run.shape, of.plans.get()});
  add_first(run, same, changes);
  const std::vector<RunShape> smaller = smaller_micro_batches(run), again = more_recomputed(run.shape);
  const bool one = add_first(run, smaller, changes), other = add_first(run, again, changes);
  if (!one && !other) {
    std::vector<RunShape> both;
    for (const RunShape& shape : smaller)
      for (const RunShape& more : more_recomputed(shape)) both.push_back(more);
    add_first(run, both, changes);
  }
  if (!run.one_rank_only)
    add_first(run, larger_worlds(run.shape, to_int(run.shape.mesh.world()) + 1, run.mesh), changes);
  add_strategies(run, changes);
  return changes;
}

std::string describe_changes(const LimitedRun& run, Bytes total) {
  std::vector<std::vector<std::string>> rows;
  for (const Change& change : changes_that_fit(run)) rows.push_back({change.what, human_bytes(change.bytes)});
  if (run.place.empty()) rows.push_back({fmt::format("--memory-cap {}", total.value()), human_bytes(total)});
  return table(rows);
}

void refuse_what_does_not_fit(const LimitedRun& run, const std::vector<MemoryPlan>& stages) {
  if (fits(run, run.shape, stages)) return;
  const MemoryPlan& plan = largest_of(stages);
  std::vector<std::vector<std::string>> rows;
  for_each_purpose([&](Purpose purpose) {
    if (plan.of(purpose).value() > 0)
      rows.push_back({std::string(in_words(purpose)), human_bytes(plan.of(purpose))});
  });
  const std::string changes = describe_changes(run, plan.total());
  std::string bytes = table(rows);
  bytes.pop_back();
  const std::string here = run.sharing > 0 ? fmt::format(", ranks here: {}", run.sharing) : "";
  const Rank first = run.shape.mesh.firsts(detail::kAlike)[static_cast<std::size_t>(&plan - stages.data())];
  const std::string place = run.shape.mesh.place(first, detail::kAlike);
  const std::string who = place.empty()                ? "a rank"
                          : place.starts_with("stage") ? "a rank of " + place
                                                       : place;
  throw InputError(ExitCode::missing,
                   run.place.empty() ? "--memory-cap " + human_bytes(run.cap)
                                     : fmt::format("{} free on {}{}", human_bytes(run.cap), run.place, here),
                   fmt::format("{} would hold {}, {} more than {}\n{}", who, human_bytes(plan.total()),
                               human_bytes(held_by(run, stages) - limit_of(run, run.shape)),
                               run.sharing > 0 ? "its share" : "that", bytes),
                   changes.empty()
                       ? "a smaller model.*" + or_more_of(run)
                       : "one of these fits, and a rank holds\n" + changes.substr(0, changes.size() - 1));
}

}  // namespace sc
