#include "common/run/planning.h"

#include <spdlog/fmt/fmt.h>

#include <cstdlib>
#include <utility>

#include "common/base/check.h"
#include "common/input/printable.h"
#include "common/run/surroundings.h"

namespace sc::detail {

namespace {

OpsBackend ops_backend(DeviceKind device, std::optional<OpsChoice> choice) {
  const OpsChoice chosen = choice.value_or(OpsChoice::fused);
  if (device == DeviceKind::cpu || chosen == OpsChoice::aten) return OpsBackend::aten;
  return chosen == OpsChoice::fused ? OpsBackend::fused : OpsBackend::deterministic;
}

void refuse_gpu_flags(const CommandLine& line) {
  const char* flag = line.ops         ? "--ops"
                     : line.graph     ? "--graph"
                     : line.transport ? "--transport"
                     : line.share_gpu ? "--share-gpu"
                     : line.profile   ? "--profile"
                                      : nullptr;
  if (flag == nullptr) return;
  throw InputError(ExitCode::usage, flag, "it is about GPUs, and this is on the CPU",
                   "leave it out, or --device cuda");
}

// Refuses flags that this strategy cannot serve.
void refuse_by(const Facts& facts, const CommandLine& line) {
  if (line.graph.value_or(false) && !facts.no_graph.empty())
    throw InputError(ExitCode::usage, "--graph on", facts.no_graph, "leave it out");
  if (line.evaluation.every > 0 && !facts.no_evaluation.empty())
    throw InputError(ExitCode::usage, "--eval-every", facts.no_evaluation,
                     "leave it out: a run evaluates at its end");
  const CheckpointFlags& asked = line.checkpoints;
  const std::string& reason = facts.no_checkpoint;
  if (reason.empty()) return;
  if (asked.every > 0)
    throw InputError(ExitCode::usage, "--save-every", reason, "--save FILE writes the weights at the end");
  if (!asked.resume.empty())
    throw InputError(ExitCode::usage, "--resume", reason,
                     "another setting goes on from it; --init FILE begins with its weights, which "
                     "`checkpoint export` writes");
}

}  // namespace

Prepared prepare(const Program& program, const Plans& plans, const CommandLine& line, ResolvedConfig config,
                 std::int64_t world, DeviceChoice computes_on) {
  if (program.one_rank && world > 1) {
    throw InputError(ExitCode::usage, line.plan ? "--world" : "-n",
                     program.name + " is one rank; " + std::to_string(world) + " were asked for",
                     "-n 1, and " + program.ranks_flag + " " + std::to_string(world) +
                         " to add gradients as that world would");
  }
  const RunFacts facts{.mesh = plans.mesh(WorldSize{static_cast<int>(world * plans.virtual_ranks())}),
                       .device = computes_on,
                       .plan_only = line.plan,
                       .ranks_flag = program.ranks_flag};
  Prepared run;
  run.batch = validate(config, facts);
  const DeviceChoice choice = line.plan ? plan_device(config.workload, line.device) : computes_on;
  const DeviceKind device = choice == DeviceChoice::cuda ? DeviceKind::cuda : DeviceKind::cpu;
  if (device == DeviceKind::cpu) refuse_gpu_flags(line);
  run.shape = {.workload = config.workload,
               .mesh = plans.mesh(WorldSize{static_cast<int>(world)}),
               .device = device,
               .ops = ops_backend(device, line.ops),
               .comm = comm_backend(device, line.share_gpu, world > 1),
               .threads = line.threads > 0 ? line.threads : 1};
  run.known = plans.facts(run.shape);
  refuse_by(run.known, line);
  run.config = std::move(config);
  return run;
}

RankPlan plan_of_set(const RankSet& ranks, const Plans& plans, RunShape shape) {
  shape.rank = Rank{ranks.first};
  return {plan_of_run(plans, shape), plans.comm_plan(shape), ranks};
}

std::vector<RankPlan> rank_plans_of(const Plans& plans, const RunShape& shape) {
  return of_world(shape, [&](const RunShape& rank) {
    return plan_of_set(rank.mesh.group(rank.rank, kAlike), plans, rank);
  });
}

// Slices only get smaller from rank to rank (slice_of), so the ranks equal to the first come first, and
// bisection finds where they end. The others form a set of their own.
std::vector<RankPlan> exact_plans_of(const Plans& plans, const RunShape& shape, std::vector<RankPlan> found) {
  for (std::size_t i = 0; i < found.size(); ++i) {
    const RankSet set = found[i].ranks;
    const auto from = [&](int place) {
      return plan_of_set({set.first + place * set.stride, set.count - place, set.stride}, plans, shape);
    };
    int like = 0, unlike = set.count;
    while (unlike - like > 1) {
      const int middle = (like + unlike) / 2;
      (from(middle) == found[i] ? like : unlike) = middle;
    }
    found[i].ranks.count = unlike;
    if (unlike < set.count) found.insert(found.begin() + static_cast<std::ptrdiff_t>(i) + 1, from(unlike));
  }
  return found;
}

std::vector<std::string> what_never_comes(const CommandLine& line, const Workload& workload,
                                          const Facts& known, std::int64_t first) {
  const std::int64_t steps = workload.steps, updates = steps * known.updates_a_step;
  if (first >= steps) return {};
  std::vector<std::string> said = known.notes;
  const auto every = [&](const std::string& what, std::int64_t each, const char* so) {
    if (each > 0 && steps / each == first / each)
      said.push_back(fmt::format("{}{}: the run ends after step {}, {}", what, each, steps, so));
  };
  every("--save-every ", line.checkpoints.every, "without a checkpoint");
  every("--eval-every ", line.evaluation.every, "and evaluates then alone");
  for (const Setting& asked : line.sources.settings)
    if (asked.key == "verify_replicas")
      every("verify_replicas=", std::atoll(asked.value.c_str()), "and compares none");
  if (const std::int64_t warmup = workload.optim.warmup_steps; warmup > updates)
    said.push_back(
        fmt::format("optim.warmup_steps={}: the run ends after {} of them, at {:.2g} % of optim.lr", warmup,
                    updates, 100 * static_cast<double>(updates) / static_cast<double>(warmup)));
  return said;
}

std::vector<std::string> notes_of(const Prepared& run, const CommandLine& line) {
  std::vector<std::string> notes = what_never_comes(line, run.config.workload, run.known, 0);
  for (const std::string& note : {run.config.note, run.batch.note})
    if (!note.empty()) notes.push_back(shown(note, 4096));
  return notes;
}

}  // namespace sc::detail
