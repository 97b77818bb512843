#include "common/run/fit.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <optional>

#include "common/base/check.h"
#include "common/base/text.h"
#include "common/config/workload_table.h"
#include "common/run/run_shape.h"

namespace sc {
namespace {

// What a rank may hold. Another world has as large a share of its ranks on this machine.
Bytes limit_of(const LimitedRun& run, const RunShape& shape) {
  if (run.sharing == 0) return run.cap;
  return run.cap / ceil_div(to_int(shape.world) * run.sharing, to_int(run.shape.world));
}

bool fits(const LimitedRun& run, const RunShape& shape, const MemoryPlan& plan) {
  return plan.total() <= limit_of(run, shape);
}

/// Micro-batches of all ranks in a step.
std::int64_t micro_batches(const RunShape& shape) {
  return shape.workload.batch.global / shape.workload.batch.micro;
}

// Largest first.
std::vector<RunShape> smaller_micro_batches(const LimitedRun& run) {
  std::vector<RunShape> shapes;
  RunShape shape = run.shape;
  const std::int64_t ranks = to_int(run.shape.world) * run.slices, global = shape.workload.batch.global;
  for (std::int64_t micro = shape.workload.batch.micro - 1; micro >= 1; --micro) {
    shape.workload.batch.micro = micro;
    if (global % (micro * ranks) == 0) shapes.push_back(shape);
  }
  return shapes;
}

// What computes least again first.
std::vector<RunShape> more_recomputed(const RunShape& from) {
  std::vector<RunShape> shapes;
  RunShape shape = from;
  for (const Activations activations : {Activations::recompute_gelu, Activations::recompute}) {
    shape.workload.activations = activations;
    if (activations > from.workload.activations) shapes.push_back(shape);
  }
  return shapes;
}

// Worlds from `from` on that share the step's micro-batches evenly.
std::vector<RunShape> larger_worlds(const RunShape& shape, std::int64_t from) {
  std::vector<RunShape> shapes;
  RunShape larger = shape;
  larger.comm = detail::comm_backend(shape.device, shape.comm == CommBackend::staged, true);
  for (std::int64_t world = from; world <= micro_batches(shape); ++world) {
    larger.world = WorldSize{static_cast<int>(world)};
    if (micro_batches(shape) % world == 0) shapes.push_back(larger);
  }
  return shapes;
}

// Each after a blank.
std::string settings(const RunShape& changed, const RunShape& from) {
  Workload w = changed.workload;
  std::string text;
  if (w.batch.micro != from.workload.batch.micro) text += fmt::format(" --set batch.micro={}", w.batch.micro);
  if (w.activations != from.workload.activations)
    text += " --set activations=" + workload_fields().bind(w).find("activations")->get();
  if (changed.world != from.world) text += fmt::format(" -n {}", to_int(changed.world));
  return text;
}

// The first of `shapes` that fits.
bool add_first(const LimitedRun& run, const std::vector<RunShape>& shapes, std::vector<Change>& changes) {
  for (const RunShape& shape : shapes) {
    const MemoryPlan plan = run.plan(shape);
    if (!fits(run, shape, plan)) continue;
    changes.push_back({settings(shape, run.shape).substr(1), plan.total()});
    return true;
  }
  return false;
}

// What a rank would hold of another strategy; nothing where that refuses the workload.
std::optional<Bytes> held_by(const StrategyPlans& strategy, const RunShape& shape) {
  try {
    return detail::plan_of_run(strategy, shape).total();
  } catch (const InputError&) {
    return std::nullopt;
  }
}

// Each strategy with the fewest ranks it needs, if it needs fewer than the one before it. False: none fits.
bool add_strategies(const LimitedRun& run, const RunShape& from, std::vector<Change>& changes) {
  const std::size_t before = changes.size();
  std::vector<RunShape> shapes = larger_worlds(from, std::max<std::int64_t>(2, to_int(from.world)));
  for (const StrategyPlans& strategy : run.strategies) {
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const std::optional<Bytes> bytes = held_by(strategy, shapes[i]);
      if (!bytes || *bytes > limit_of(run, shapes[i])) continue;
      changes.push_back(
          {fmt::format("{} -n {}{}", strategy.name, to_int(shapes[i].world), settings(from, run.shape)),
           *bytes});
      shapes.resize(i);
    }
  }
  return changes.size() > before;
}

// The same, with the least that has to be computed again beside it.
void add_strategies(const LimitedRun& run, std::vector<Change>& changes) {
  if (add_strategies(run, run.shape, changes)) return;
  for (const RunShape& shape : more_recomputed(run.shape))
    if (add_strategies(run, shape, changes)) return;
}

// Where no change of this run fits.
std::string or_more_of(const LimitedRun& run) {
  if (run.sharing > 0) return run.shape.device == DeviceKind::cpu ? ", or more machines" : ", or more GPUs";
  return run.one_rank_only ? "" : ", or more ranks";
}

}  // namespace

std::vector<Change> changes_that_fit(const LimitedRun& run) {
  std::vector<Change> changes;
  const std::vector<RunShape> smaller = smaller_micro_batches(run), again = more_recomputed(run.shape);
  const bool one = add_first(run, smaller, changes), other = add_first(run, again, changes);
  if (!one && !other) {
    std::vector<RunShape> both;
    for (const RunShape& shape : smaller)
      for (const RunShape& more : more_recomputed(shape)) both.push_back(more);
    add_first(run, both, changes);
  }
  if (!run.one_rank_only) add_first(run, larger_worlds(run.shape, to_int(run.shape.world) + 1), changes);
  add_strategies(run, changes);
  return changes;
}

std::string describe_changes(const LimitedRun& run) {
  std::vector<std::vector<std::string>> rows;
  for (const Change& change : changes_that_fit(run)) rows.push_back({change.what, human_bytes(change.bytes)});
  const Bytes total = run.plan(run.shape).total();
  if (run.place.empty()) rows.push_back({fmt::format("--memory-cap {}", total.value()), human_bytes(total)});
  return table(rows);
}

void refuse_what_does_not_fit(const LimitedRun& run) {
  const MemoryPlan plan = run.plan(run.shape);
  if (fits(run, run.shape, plan)) return;
  std::vector<std::vector<std::string>> rows;
  for (int p = 0; p < kPurposes; ++p) {
    const auto purpose = static_cast<Purpose>(p);
    const bool counts = purpose != Purpose::host && purpose != Purpose::disk;
    if (counts && plan.of(purpose).value() > 0)
      rows.push_back({std::string(name_of(purpose)), human_bytes(plan.of(purpose))});
  }
  const std::string changes = describe_changes(run);
  std::string bytes = table(rows);
  bytes.pop_back();
  const bool shared = run.sharing > 0;
  const std::string here = shared ? fmt::format(", ranks here: {}", run.sharing) : "";
  throw InputError(
      ExitCode::missing,
      run.place.empty() ? "--memory-cap " + human_bytes(run.cap)
                        : fmt::format("{} free on {}{}", human_bytes(run.cap), run.place, here),
      fmt::format("a rank would hold {}, {} more than {}\n{}", human_bytes(plan.total()),
                  human_bytes(plan.total() - limit_of(run, run.shape)), shared ? "its share" : "that", bytes),
      changes.empty() ? "a smaller model.*" + or_more_of(run)
                      : "one of these fits, and a rank holds\n" + changes.substr(0, changes.size() - 1));
}

}  // namespace sc
