// What lesson 07 holds and sends, and its settings.
#include "pipeline_plan.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>

#include "common/base/text.h"
#include "common/pipeline/steps.h"
#include "common/strategy/gradient_dtype.h"
#include "common/strategy/group_plan.h"

namespace sc {

FieldTable<PipelineOptions> PipelinePlans::table() const {
  FieldTable<Options> table;
  table.add(
      {"schedule", "", "naive, gpipe, 1f1b, interleaved, zb_h1, or file:PATH with a schedule of pipedream's"},
      text(), &Options::schedule);
  add_list_fields(table);
  table.add({"replicas", "ranks", "how many ranks share each stage's micro-batches"}, integer(1, 1024),
            &Options::replicas);
  table.add(
      {"states", "", "gradients' sums and optimizer states on each replica, or lesson 02's slices of them"},
      choice<ReplicaStates>({{"whole", ReplicaStates::whole}, {"sharded", ReplicaStates::sharded}}),
      &Options::states);
  add_stage_fields(table, "position");
  table.add({"sends", "", "a send returns at once, or blocks until its receive has begun"},
            choice<Sends>({{"posted", Sends::posted}, {"blocking", Sends::blocking}}), &Options::sends);
  table.add({"unchecked", "", "run a list that pipedream finds in a deadlock, to see it hang"}, on_off(),
            &Options::unchecked);
  table.add({"verify_replicas", "steps",
             "every k steps replicas of a stage and both copies of the tied matrix are compared; 0 = never"},
            integer(0), &Options::verify_replicas);
  return table;
}

Mesh PipelinePlans::mesh(WorldSize world) const {
  return Mesh(world, {{Axis::stages, std::max<std::int64_t>(1, to_int(world) / options_.replicas)}});
}

Facts PipelinePlans::facts(const RunShape& /*shape*/) const {
  Facts facts{.links = {.message_ms = options_.link_ms},
              .smaller = {"states=sharded", "schedule=1f1b chunks=1"}};
  if (options_.warmup > 0) facts.smaller.insert(facts.smaller.begin(), "warmup=0");
  return facts;
}

Contents PipelinePlans::contents(const RunShape& shape) const {
  return contents_of(share_of(shape, options_));
}

MemoryPlan PipelinePlans::memory_plan(const RunShape& shape) const {
  refuse_other_reduce_dtype(shape);
  MemoryPlan plan;
  const Share share = share_of(shape, options_);
  plan_stage(shape, share, plan);
  if (share.replicas > 1) plan_group(shape, Formula("R", share.replicas), plan);
  if (share.has_two_ends() && share.is_an_end()) plan_group(shape, 2, plan);
  return plan;
}

CommPlan PipelinePlans::comm_plan(const RunShape& shape) const {
  CommPlan plan;
  const Share share = share_of(shape, options_);
  plan_messages(shape, share, share.actions(), plan);
  plan_sums(shape, share, plan);
  plan.add({CommKind::all_reduce, DType::f64, Elements(4), shape.mesh.world()}, {OpPurpose::sums});
  return plan;
}

std::string PipelinePlans::predict(const RunShape& shape) const {
  const Share share = share_of(shape, options_);
  if (!share.costs) return "";
  const StepTime step = Steps{share.schedule}.time_by(*share.costs);
  const BatchConfig& batch = shape.workload.batch;
  const double rate = static_cast<double>(batch.global * batch.sequence) / step.seconds;
  return fmt::format("time of a step, by {}\n  makespan {:.2f} ms, idle {:.1f} %, {} tokens a second\n",
                     options_.costs, 1e3 * step.seconds, 1e2 * step.idle, human_count(std::llround(rate)));
}

}  // namespace sc
