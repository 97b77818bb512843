// What lesson 11 holds and sends, and its settings.
#include "combined_plan.h"

#include <spdlog/fmt/fmt.h>

#include <regex>
#include <vector>

#include "common/base/check.h"
#include "common/strategy/gradient_dtype.h"
#include "common/strategy/group_plan.h"
#include "lessons/10_tensor_parallel/tensor_parallel_plan.h"
#include "lessons/12_context_parallel/context_parallel_plan.h"

namespace sc {

FieldTable<CombinedOptions> CombinedPlans::table() const {
  FieldTable<Options> table;
  table.add(
      {"mesh", "ranks",
       "stages x data x tensor, as 2x2x2, or stages x data x context x tensor; auto: two tensor ranks where "
       "that divides, two stages where four do"},
      text(), &Options::mesh);
  table.add({"schedule", "", "of the stages: naive, gpipe, 1f1b, interleaved, or zb_h1 without tensor ranks"},
            text(), &Options::schedule);
  add_list_fields(table);
  table.add({"states", "", "optimizer states on each rank of a data group, or lesson 02's slices of them"},
            choice<ReplicaStates>({{"whole", ReplicaStates::whole}, {"sharded", ReplicaStates::sharded}}),
            &Options::states);
  table.add({"tokens", "",
             "between the halves of a block a tensor rank has a run of the tokens (split) or all (whole)"},
            choice<TokenShare>({{"split", TokenShare::split}, {"whole", TokenShare::whole}}),
            &Options::tokens);
  table.add({"split", "", "blocks of each position: balanced, uniform, or 7,7,7,3"}, text(), &Options::split);
  table.add({"verify_replicas", "steps", "every k steps copies of a stage's vectors are compared; 0 = never"},
            integer(0), &Options::verify_replicas);
  return table;
}

// Tensor ranks send the most, so they are neighbours on a host; stages send the least.
Mesh mesh_of(const CombinedOptions& options, WorldSize world) {
  const std::int64_t n = to_int(world);
  if (options.mesh == "auto") {
    return Mesh(world, {{Axis::stages, n % 4 == 0 ? 2 : 1}, {Axis::tensor, n % 2 == 0 ? 2 : 1}});
  }
  static const std::regex kSize("[0-9]+"), kSizes("0*[1-9][0-9]{0,17}(x0*[1-9][0-9]{0,17}){2,3}");
  if (!std::regex_match(options.mesh, kSizes))
    refuse_setting("mesh",
                   fmt::format("\"{}\" is not stages x data x tensor, nor stages x data x context x tensor",
                               options.mesh),
                   "mesh=2x1x2, or auto");
  std::vector<std::int64_t> sizes;
  for (std::sregex_iterator size(options.mesh.begin(), options.mesh.end(), kSize), end; size != end; ++size)
    sizes.push_back(std::stoll(size->str()));
  if (sizes.size() == 3) sizes.insert(sizes.end() - 1, 1);
  if (const std::int64_t ranks = sizes[0] * sizes[1] * sizes[2] * sizes[3]; ranks != n) {
    const Mesh fits = mesh_of({}, world);
    refuse_setting("mesh", fmt::format("{} makes {} ranks, and there are {}", options.mesh, ranks, n),
                   fmt::format("-n {}, or mesh={}x{}x{}", ranks, fits.size(Axis::stages),
                               fits.size(Axis::data), fits.size(Axis::tensor)));
  }
  return Mesh(world, {{Axis::stages, sizes[0]}, {Axis::context, sizes[2]}, {Axis::tensor, sizes[3]}});
}

RunShape part_of(const RunShape& shape) { return shape_of_part(shape, context_cut_of(shape)); }

Facts CombinedPlans::facts(const RunShape& shape) const {
  Facts facts;
  if (shape.mesh.size(Axis::stages) > 1 && shape.mesh.size(Axis::tensor) > 1)
    facts.no_graph =
        "a stage waits for messages and its tensor group for sums, and CUDA may keep one behind the other";
  facts.smaller = {"states=sharded", "tokens=split"};
  if (options_.warmup > 0) facts.smaller.insert(facts.smaller.begin(), "warmup=0");
  return facts;
}

PipelineOptions pipeline_options(const RunShape& shape, const CombinedOptions& options) {
  return {.schedule = options.schedule,
          .chunks = options.chunks,
          .warmup = options.warmup,
          .replicas = shape.mesh.size(Axis::data) * shape.mesh.size(Axis::context),
          .states = options.states,
          .split = options.split,
          .verify_replicas = options.verify_replicas};
}

Share share_of(const RunShape& shape, const CombinedOptions& options) {
  if (shape.mesh.size(Axis::tensor) > 1 && options.schedule == "zb_h1")
    refuse_setting("schedule",
                   "zb_h1 puts gradients of weights off, and tensor ranks' messages hide behind them",
                   "schedule=1f1b, or a mesh with one tensor rank");
  if (shape.mesh.size(Axis::context) > 1 && options.schedule == "zb_h1" &&
      shape.workload.activations == Activations::recompute)
    refuse_setting(
        "schedule",
        "zb_h1 computes a block once more for its weights, and context ranks' keys would travel again",
        "schedule=1f1b, or --set activations=keep");
  Share share = share_of(shape, pipeline_options(shape, options));
  if (options.tokens == TokenShare::split) share.message /= shape.mesh.size(Axis::tensor);
  return share;
}

PartSizes part_sizes_of(const RunShape& shape, const Share& share, const CombinedOptions& options) {
  return {shape, share.layout, options.tokens};
}

BufferShape part_stage_shape(const Share& share) {
  BufferShape shape = share.buffers;
  shape.grads = share.slots.pools.grads;
  shape.pending = 0;
  return shape;
}

void plan_context_axis(const RunShape& shape, const Share& share, MemoryPlan& plan) {
  if (shape.mesh.size(Axis::context) == 1) return;
  plan_exchange(shape, {}, share.layout.heads().size(), plan);
  plan.add(own_tokens_of(shape, micro_batches_of(shape)));
}

Contents CombinedPlans::contents(const RunShape& shape) const {
  Contents contents = contents_of(share_of(part_of(shape), options_));
  contents.cut = shape.mesh.size(Axis::tensor) > 1;
  if (contents.cut) contents.parameters = contents.states = Extent::slice;
  return contents;
}

MemoryPlan CombinedPlans::memory_plan(const RunShape& whole) const {
  refuse_other_reduce_dtype(whole);
  MemoryPlan plan;
  const RunShape shape = part_of(whole);
  const Share share = share_of(shape, options_);
  if (shape.mesh.size(Axis::tensor) == 1) {
    plan_stage(shape, share, plan);
  } else {
    plan_stage_states(shape, share, plan);
    plan_part_stage(shape, part_sizes_of(shape, share, options_), part_stage_shape(share), plan);
    plan.add(step_sums());
    plan_group(shape, Formula("t", shape.mesh.size(Axis::tensor)), plan);
  }
  plan_context_axis(whole, share, plan);
  if (const std::int64_t c = shape.mesh.size(Axis::context); c > 1) plan_group(shape, Formula("c", c), plan);
  if (share.replicas > 1) plan_group(shape, Formula("R", share.replicas), plan);
  if (share.has_two_ends() && share.is_an_end()) plan_group(shape, 2, plan);
  return plan;
}

CommPlan CombinedPlans::comm_plan(const RunShape& whole) const {
  CommPlan plan;
  const RunShape shape = part_of(whole);
  const Share share = share_of(shape, options_);
  plan_messages(shape, share, share.actions(), plan);
  const PartSizes sizes = part_sizes_of(shape, share, options_);
  for (int p = share.stage; p < share.schedule.positions(); p += share.schedule.stages) {
    const Part& part = share.part(p);
    if (sizes.ranks > 1)
      plan_tensor_messages(shape, sizes, {part.first, part.last(), share.embeds(p), share.has_head(p)},
                           /*kept=*/false, plan);
    if (shape.mesh.size(Axis::context) > 1)
      plan_exchange_messages(whole, {}, sizes.heads, part.first, part.last(), plan);
  }
  plan_sums(shape, share, plan);
  if (sizes.split())
    plan.add({CommKind::all_reduce, shape.workload.precision.grad_dtype, Elements(share.whole.size()),
              WorldSize{static_cast<int>(sizes.ranks)}},
             {OpPurpose::gradients});
  plan.add({CommKind::all_reduce, DType::f64, Elements(4), shape.mesh.world()}, {OpPurpose::sums});
  return plan;
}

}  // namespace sc
