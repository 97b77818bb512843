// What lesson 08 holds and sends, and its settings.
#include "weight_versions_plan.h"

#include <spdlog/fmt/fmt.h>

#include <cmath>

#include "common/base/text.h"
#include "common/strategy/gradient_dtype.h"
#include "common/strategy/group_plan.h"
#include "endless.h"
#include "pipedream/check.h"

namespace sc {

using pipedream::VersionRule;

FieldTable<VersionOptions> WeightVersionsPlans::table() const {
  FieldTable<Options> table;
  table.add(
      {"versions", "", "which weights a micro-batch may see: the newest, or older ones that are kept for it"},
      choice<VersionRule>({{"none", VersionRule::none},
                           {"stash", VersionRule::stash},
                           {"vertical_sync", VersionRule::vertical_sync},
                           {"two_buffers", VersionRule::two_buffers}}),
      &Options::versions);
  table.add({"update_every", "micro-batches", "between two updates; auto: 1, with two_buffers all of a step"},
            choice_or_integer<std::int64_t>(
                {{"auto", 0}}, 1, [](std::int64_t n) { return n; }, [](std::int64_t n) { return n; }),
            &Options::update_every);
  add_stage_fields(table, "stage");
  return table;
}

MemoryPlan WeightVersionsPlans::memory_plan(const RunShape& shape) const {
  refuse_other_reduce_dtype(shape);
  MemoryPlan plan;
  const Endless endless(shape, options_);
  plan_stage(shape, endless.share, plan);
  plan_late_sums(endless, plan);
  plan.add({Purpose::workspace, "divisor", {}, DType::f32});
  const BatchConfig& batch = shape.workload.batch;
  const Formula stages("S", shape.mesh.size(Axis::stages)), rows("B", batch.micro),
      length("T", batch.sequence);
  if (endless.keeps_tokens())
    plan.add({Purpose::workspace, "tokens in flight", stages * rows * length, DType::i64});
  plan_group(shape, Formula("N", shape.mesh.world()), plan);
  return plan;
}

// A window in the steady state has as many forwards as backwards, an all-reduce for each update, and a copy
// of a step's numbers to the host. The second window has the same operations already.
CommPlan WeightVersionsPlans::comm_plan(const RunShape& shape) const {
  CommPlan plan;
  const Endless endless(shape, options_);
  plan_messages(shape, endless.share,
                endless.windows.window(endless.share.stage, pipedream::Windows::kSteady), plan);
  plan.add({CommKind::all_reduce, DType::f64, Elements(4), shape.mesh.world()}, {OpPurpose::sums},
           endless.updates_a_step);
  plan.add({CommKind::to_host, DType::f64, Elements(Endless::kResult), WorldSize{1}}, {OpPurpose::sums});
  return plan;
}

Contents WeightVersionsPlans::contents(const RunShape& shape) const {
  return contents_of(Endless(shape, options_).share);
}

namespace {

// What a checkpoint holds in the middle: older versions, the gradient that an update is being added up in,
// and the gradient that the next stage has sent.
Bytes bytes_in_flight(const Endless& endless, const Workload& w) {
  const Share& share = endless.share;
  Bytes bytes = (share.slots.pools.weights - 1) * bytes_of(share.elements, w.precision.dtype);
  if (endless.update_every > 1) bytes += bytes_of(share.elements, w.precision.grad_dtype);
  if (!share.last)
    bytes += bytes_of(Elements(w.batch.micro * w.batch.sequence * w.model.width), w.precision.dtype);
  return bytes;
}

}  // namespace

Facts WeightVersionsPlans::facts(const RunShape& shape) const {
  const Endless endless(shape, options_);
  return {
      .links = {.message_ms = options_.link_ms},
      .updates_a_step = endless.updates_a_step,
      .planned_from = 1,  // the first step has fewer backwards than the plan says
      .pending = bytes_in_flight(endless, shape.workload),
      .no_graph =
          "micro-batches of one step end in the next one, and every update has a learning rate of its own",
      .no_evaluation =
          "the stages would have to finish what is on its way, and every later step would be another one",
      .no_checkpoint =
          options_.versions != VersionRule::none
              ? ""
              : "with versions=none a micro-batch on its way has been forward with weights that are "
                "gone, and cannot be again"};
}

std::string WeightVersionsPlans::predict(const RunShape& shape) const {
  const Endless endless(shape, options_);
  std::string versions;
  for (const pipedream::StageCounts& count : pipedream::count(endless.windows.proven()))
    versions += (versions.empty() ? "" : ", ") + std::to_string(count.versions);
  std::string text = fmt::format(
      "updates: one {}, {} a step, {} in all: warm-up and decay count them\n"
      "versions of the weights, by stage: {}\n",
      endless.update_every == 1 ? std::string("per micro-batch")
                                : fmt::format("every {} micro-batches", endless.update_every),
      endless.updates_a_step, human_count(shape.workload.steps * endless.updates_a_step), versions);
  if (shape.workload.optim.clip > 0 && endless.norm_lag > 0)
    text += fmt::format("clipping by the norm of {} update{} before; the first {} not clipped\n",
                        endless.norm_lag, endless.norm_lag == 1 ? "" : "s",
                        endless.norm_lag == 1 ? "is" : fmt::format("{} are", endless.norm_lag));
  if (!endless.share.costs) return text;
  const StepTime step = endless.steps().time_by(*endless.share.costs);
  const BatchConfig& batch = shape.workload.batch;
  return text +
         fmt::format(
             "time of a step, by {}\n  {:.2f} ms, idle {:.1f} %, {} tokens a second\n", options_.costs,
             1e3 * step.seconds, 1e2 * step.idle,
             human_count(std::llround(static_cast<double>(batch.global * batch.sequence) / step.seconds)));
}

}  // namespace sc
