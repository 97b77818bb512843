// Finds the list that a stage executes, and proves that it can be executed.
#include <spdlog/fmt/fmt.h>

#include <tuple>

#include "common/base/check.h"
#include "common/pipeline/translated.h"
#include "pipedream/check.h"
#include "pipedream/generate.h"
#include "pipedream/schedule_file.h"
#include "pipeline_plan.h"

namespace sc {
namespace {

constexpr const char* kFile = "file:";

pipedream::Schedule generated(const PipelineOptions& options, int stages, int microbatches) {
  pipedream::Family family{};
  const bool known = pipedream::family_from_name(options.schedule, family);
  if (known && pipedream::is_asynchronous(family))
    refuse_setting("schedule",
                   options.schedule + " updates weights without a flush, which this lesson does not do",
                   "naive, gpipe, 1f1b, interleaved or zb_h1");
  if (!known)
    refuse_setting("schedule", fmt::format("there is no schedule \"{}\"", options.schedule),
                   "naive, gpipe, 1f1b, interleaved, zb_h1, or file:PATH");
  const bool alone = family == pipedream::Family::interleaved && options.chunks == 1;
  return pipedream::generate({.family = family,
                              .stages = stages,
                              .microbatches = microbatches,
                              .chunks = alone ? 2 : static_cast<int>(options.chunks),
                              .warmup = static_cast<int>(options.warmup)});
}

pipedream::Schedule from_file(const PipelineOptions& options, int stages, int microbatches) {
  const std::string path = options.schedule.substr(std::string(kFile).size());
  pipedream::Schedule schedule = pipedream::read_schedule(path);
  if (schedule.stages != stages || schedule.microbatches != microbatches) {
    refuse_setting("schedule",
                   fmt::format("{} is for {} stages and {} micro-batches; this run has {} and {}", path,
                               schedule.stages, schedule.microbatches, stages, microbatches),
                   fmt::format("-n {}, and batch.global and batch.micro that make {} micro-batches a replica",
                               schedule.stages, schedule.microbatches));
  }
  if (options.chunks != 1 && options.chunks != schedule.chunks)
    refuse_setting(
        "chunks",
        fmt::format("{} has {} chunks, and {} were asked for", path, schedule.chunks, options.chunks),
        "leave out chunks: a file says how many it has");
  if (options.warmup != 0)
    refuse_setting("warmup", path + " says itself when its stages begin backward",
                   "leave out warmup, or schedule=1f1b");
  if (schedule.versions != pipedream::VersionRule::flush)
    refuse_setting("schedule", path + " keeps several versions of the weights, which this lesson does not do",
                   "a schedule with versions: flush");
  return schedule;
}

// The step, in which all stages meet, has to come once and at the end; pipedream's rules allow more.
void require_one_step(const pipedream::Schedule& schedule, const std::string& name) {
  for (int stage = 0; stage < schedule.stages; ++stage) {
    const std::vector<pipedream::Action>& actions = schedule.actions[static_cast<std::size_t>(stage)];
    for (std::size_t i = 0; i < actions.size(); ++i) {
      if ((actions[i].kind == pipedream::Kind::step) == (i + 1 == actions.size())) continue;
      throw InputError(
          ExitCode::data, "schedule " + name,
          fmt::format("stage {}, action {}: a list of this lesson has one step, at its end", stage, i),
          "one batch: pipedream/run.sh check --schedule 1f1b --batches 1 --write FILE");
    }
  }
}

// [anchor: proven-before-it-runs]
// Nothing is executed that pipedream has not proven: complete, in order, every message met, free of deadlock.
pipedream::Schedule proven(const PipelineOptions& options, int stages, int microbatches) {
  return translated("schedule", [&] {
    const bool file = options.schedule.starts_with(kFile);
    pipedream::Schedule schedule =
        file ? from_file(options, stages, microbatches) : generated(options, stages, microbatches);
    for (const pipedream::Violation& violation : pipedream::check(schedule).violations) {
      if (options.unchecked && violation.rule == pipedream::Rule::deadlock) continue;
      throw InputError(ExitCode::data, "schedule " + options.schedule, pipedream::to_text(violation),
                       "pipedream/run.sh check --file FILE lists every violation");
    }
    require_one_step(schedule, options.schedule);
    return schedule;
  });
}

// The plan of a large mesh asks for the same list once for each of its ranks, so the newest one is kept. What
// is in a file may have changed, and is read again.
pipedream::Schedule schedule_of(const PipelineOptions& options, int stages, int microbatches) {
  if (options.schedule.starts_with(kFile)) return proven(options, stages, microbatches);
  thread_local std::tuple<std::string, std::int64_t, std::int64_t, int, int> key;
  thread_local pipedream::Schedule newest;
  const std::tuple asked{options.schedule, options.chunks, options.warmup, stages, microbatches};
  if (key != asked) newest = proven(options, stages, microbatches), key = asked;
  return newest;
}

}  // namespace

Share share_of(const RunShape& shape, const PipelineOptions& options) {
  // More stages than blocks are refused before a schedule of that many is proven.
  if (shape.mesh.size(Axis::stages) > shape.workload.model.layers)
    cut_blocks(shape.workload, static_cast<int>(shape.mesh.size(Axis::stages)), options.split,
               options.profile_in);
  Share share(shape, stage_options(options),
              schedule_of(options, static_cast<int>(shape.mesh.size(Axis::stages)),
                          static_cast<int>(micro_batches_of(shape))),
              options.states == ReplicaStates::sharded);
  if (shape.device == DeviceKind::cuda && options.sends == Sends::blocking)
    refuse_setting("sends", "it is about ranks on the CPU, and these are GPUs",
                   "leave it out, or --device cpu");
  if (options.replicas != share.replicas)
    refuse_setting("replicas",
                   fmt::format("{} replicas on {} ranks", options.replicas, to_int(shape.mesh.world())),
                   "as many ranks as replicas at least: they divide the ranks");
  return share;
}

}  // namespace sc
