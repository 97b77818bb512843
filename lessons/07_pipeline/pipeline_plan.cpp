// What lesson 07 holds and sends, and its settings.
#include <algorithm>

#include "common/strategy/gradient_dtype.h"
#include "common/strategy/group_plan.h"
#include "pipeline.h"

namespace sc {

FieldTable<PipelineOptions> Pipeline::fields() {
  FieldTable<Options> table;
  table.add(
      {"schedule", "", "naive, gpipe, 1f1b, interleaved, zb_h1, or file:PATH with a schedule of pipedream's"},
      text(), &Options::schedule);
  table.add({"chunks", "", "model chunks a stage, for interleaved and zb_h1; interleaved alone means 2"},
            integer(1, 64), &Options::chunks);
  table.add({"replicas", "ranks", "how many ranks share each stage's micro-batches"}, integer(1, 1024),
            &Options::replicas);
  table.add({"split", "",
             "blocks of each position: balanced (by operations, the head's counted), uniform, or 7,7,7,3"},
            text(), &Options::split);
  table.add({"verify_replicas", "steps",
             "every k steps replicas of a stage and both copies of the tied matrix are compared; 0 = never"},
            integer(0), &Options::verify_replicas);
  return table;
}

Division Pipeline::division(const Options& options, WorldSize world) {
  return {.stages = std::max<std::int64_t>(1, to_int(world) / options.replicas)};
}

namespace {

bool has_two_ends(const RunShape& shape) { return shape.stages > 1 && shape.workload.model.tied; }
bool is_an_end(const Share& share) { return share.first || share.last; }

}  // namespace

MemoryPlan Pipeline::memory_plan(const RunShape& shape, const Options& options) {
  refuse_other_reduce_dtype(shape);
  MemoryPlan plan;
  const PrecisionConfig& precision = shape.workload.precision;
  const Share share(shape, options);
  const auto whole = [&](Purpose purpose, const char* name, DType dtype) {
    plan.add(purpose, name, std::to_string(size_of(dtype)) + " of this stage",
             bytes_of(share.elements, dtype));
  };
  whole(Purpose::parameters, "params_stage", precision.dtype);
  whole(Purpose::gradients, "grads_stage", precision.grad_dtype);
  OptimizerState::plan(shape, share.elements, plan, "stage");
  plan_activation_buffers(shape, share.buffers, plan);
  if (share.replicas > 1) plan_group(shape, WorldSize{share.replicas}, plan);
  if (has_two_ends(shape) && is_an_end(share)) plan_group(shape, WorldSize{2}, plan);
  return plan;
}

// Messages as the list has them; gradients over the replicas, unit by unit; the tied matrix between the ends.
CommPlan Pipeline::comm_plan(const RunShape& shape, const Options& options) {
  CommPlan plan;
  const Share share(shape, options);
  const Workload& w = shape.workload;
  const Elements message(w.batch.micro * w.batch.sequence * w.model.width),
      tied(w.model.vocab_padded() * w.model.width);
  for (const pipedream::Action& action : share.actions()) {
    if (!pipedream::is_message(action.kind)) continue;
    plan.add(pipedream::is_send(action.kind) ? CommKind::send : CommKind::recv, w.precision.dtype, message,
             shape.world);
  }
  if (share.replicas > 1) {
    const WorldSize replicas{share.replicas};
    for (int unit = 0; unit < share.layout.num_units(); ++unit) {
      if (share.begin(unit) >= 0)
        plan.add(CommKind::all_reduce, w.precision.grad_dtype, Elements(share.layout.unit(unit).sharded_size),
                 replicas);
    }
    plan.add(CommKind::all_reduce, w.precision.grad_dtype, Elements(share.tied_copy), replicas);
  }
  if (has_two_ends(shape) && is_an_end(share))
    plan.add(CommKind::all_reduce, w.precision.grad_dtype, tied, WorldSize{2});
  plan.add(CommKind::all_reduce, DType::f64, Elements(4),
           shape.world);  // loss, tokens, squares, overflow flag
  return plan;
}

Pipeline::Pipeline(RunContext& context, const Options& options)
    : context_(context),
      options_(options),
      share_(context.shape, options),
      stage_(context, share_),
      sums_(stage_.sums()),
      received_x_(static_cast<std::size_t>(share_.slots.pools.inputs)),
      received_grad_(static_cast<std::size_t>(share_.slots.pools.grads)),
      sent_x_(static_cast<std::size_t>(share_.slots.pools.sets)),
      sent_grad_(static_cast<std::size_t>(share_.slots.pools.grads)),
      reduced_(stage_.slices().size()) {
  if (share_.replicas > 1) replicas_ = context.comm.split(share_.stage);
  if (has_two_ends(context.shape)) ends_ = context.comm.split(is_an_end(share_) ? share_.replica : -1);
}

}  // namespace sc
