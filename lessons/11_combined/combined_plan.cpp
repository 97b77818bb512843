// What lesson 11 holds and sends, and its settings.
#include "combined_plan.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "common/base/check.h"
#include "common/strategy/gradient_dtype.h"
#include "common/strategy/group_plan.h"

namespace sc {

FieldTable<CombinedOptions> CombinedPlans::table() const {
  FieldTable<Options> table;
  table.add({"mesh", "ranks",
             "stages x data x tensor, as 2x2x2; auto: two tensor ranks where that divides, two stages where "
             "four do"},
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

// Two GPUs of a host are nearest as tensor ranks; stages send the least.
Mesh mesh_of(const CombinedOptions& options, WorldSize world) {
  const std::int64_t n = to_int(world);
  if (options.mesh == "auto") {
    return Mesh(world, {{Axis::stages, n % 4 == 0 ? 2 : 1}, {Axis::tensor, n % 2 == 0 ? 2 : 1}});
  }
  std::vector<std::int64_t> sizes;
  const char *at = options.mesh.data(), *end = at + options.mesh.size();
  while (at < end && sizes.size() < 4) {
    std::int64_t size = 0;
    const auto [next, error] = std::from_chars(at, end, size);
    if (error != std::errc() || size < 1 || (next < end && (*next != 'x' || next + 1 == end))) break;
    sizes.push_back(size);
    at = next < end ? next + 1 : next;
  }
  if (at < end || sizes.size() != 3)
    refuse_setting("mesh", fmt::format("\"{}\" is not stages x data x tensor", options.mesh),
                   "mesh=2x1x2, or auto");
  if (const std::int64_t ranks = sizes[0] * sizes[1] * sizes[2]; ranks != n) {
    const Mesh fits = mesh_of({}, world);
    refuse_setting("mesh", fmt::format("{} makes {} ranks, and there are {}", options.mesh, ranks, n),
                   fmt::format("-n {}, or mesh={}x{}x{}", ranks, fits.size(Axis::stages),
                               fits.size(Axis::data), fits.size(Axis::tensor)));
  }
  return Mesh(world, {{Axis::stages, sizes[0]}, {Axis::tensor, sizes[2]}});
}

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
  PipelineOptions stages;
  stages.schedule = options.schedule, stages.chunks = options.chunks, stages.warmup = options.warmup;
  stages.split = options.split, stages.states = options.states;
  stages.verify_replicas = options.verify_replicas;
  stages.replicas = shape.mesh.size(Axis::data);
  return stages;
}

Share share_of(const RunShape& shape, const CombinedOptions& options) {
  if (shape.mesh.size(Axis::tensor) > 1 && options.schedule == "zb_h1")
    refuse_setting("schedule",
                   "zb_h1 puts gradients of weights off, and tensor ranks' messages hide behind them",
                   "schedule=1f1b, or a mesh with one tensor rank");
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

Contents CombinedPlans::contents(const RunShape& shape) const {
  Contents contents = contents_of(share_of(shape, options_));
  contents.cut = shape.mesh.size(Axis::tensor) > 1;
  if (contents.cut) contents.parameters = contents.states = Extent::slice;
  return contents;
}

MemoryPlan CombinedPlans::memory_plan(const RunShape& shape) const {
  refuse_other_reduce_dtype(shape);
  MemoryPlan plan;
  const Share share = share_of(shape, options_);
  if (shape.mesh.size(Axis::tensor) == 1) {
    plan_stage(shape, share, plan);
  } else {
    plan_stage_states(shape, share, plan);
    plan_part_stage(shape, part_sizes_of(shape, share, options_), part_stage_shape(share), plan);
    plan.add(Purpose::workspace, "sums", "8 x 4", Bytes(4 * size_of(DType::f64)));
    plan_group(shape, WorldSize{static_cast<int>(shape.mesh.size(Axis::tensor))}, plan, "t");
  }
  if (share.replicas > 1) plan_group(shape, WorldSize{share.replicas}, plan, "R");
  if (share.has_two_ends() && share.is_an_end()) plan_group(shape, WorldSize{2}, plan, "2");
  return plan;
}

namespace {

/// What a step's tokens make the ranks of a tensor group send. They are neighbours.
class OfTensorGroup {
 public:
  OfTensorGroup(const RunShape& shape, const Share& share, const PartSizes& sizes, CommPlan& plan)
      : shape_(shape),
        share_(share),
        s_(sizes),
        plan_(plan),
        group_{static_cast<int>(shape.mesh.size(Axis::tensor))},
        m_(micro_batches_of(shape)) {}

  void gathers(OpPurpose purpose, int unit, std::int64_t times) {
    if (s_.split()) tokens(CommKind::all_gather, purpose, unit, times);
  }
  void sums(OpPurpose purpose, int unit, std::int64_t times) {
    tokens(s_.split() ? CommKind::reduce_scatter : CommKind::all_reduce, purpose, unit, times);
  }
  void statistics() {
    const int last = share_.layout.last_unit();
    for (std::int64_t begin = 0; begin < s_.N; begin += s_.chunk)
      plan_.add({CommKind::all_gather, DType::f32, Elements(2 * s_.ranks * std::min(s_.chunk, s_.N - begin)),
                 group_},
                {OpPurpose::sums, last}, m_);
  }
  // Once a step.
  void whole_grads() {
    plan_.add(
        {CommKind::all_reduce, shape_.workload.precision.grad_dtype, Elements(share_.whole.size()), group_},
        {OpPurpose::gradients});
  }
  // A position's blocks.
  void position(int position) {
    const Part& part = share_.part(position);
    const bool recompute = shape_.workload.activations == Activations::recompute;
    if (share_.embeds(position)) sums(OpPurpose::activations, 0, 1);
    for (int unit = part.first; unit <= part.last(); ++unit) {
      const bool leaves = unit == part.first && !share_.embeds(position);
      gathers(OpPurpose::activations, unit, recompute ? 5 : 4);
      gathers(OpPurpose::activation_gradients, unit, leaves ? 1 : 2);
      sums(OpPurpose::activations, unit, recompute ? 3 : 2);
      sums(OpPurpose::activation_gradients, unit, 2);
    }
    gathers(OpPurpose::activation_gradients, part.last() + 1, 1);
    if (!share_.has_head(position)) return;
    gathers(OpPurpose::activations, part.last() + 1, 1);
    sums(OpPurpose::activation_gradients, part.last() + 1, 1);
    statistics();
  }

 private:
  void tokens(CommKind kind, OpPurpose purpose, int unit, std::int64_t times) {
    plan_.add({kind, shape_.workload.precision.dtype, Elements(s_.N * s_.d), group_}, {purpose, unit},
              m_ * times);
  }
  const RunShape& shape_;
  const Share& share_;
  const PartSizes& s_;
  CommPlan& plan_;
  const WorldSize group_;
  const std::int64_t m_;
};

}  // namespace

CommPlan CombinedPlans::comm_plan(const RunShape& shape) const {
  CommPlan plan;
  const Share share = share_of(shape, options_);
  plan_messages(shape, share, share.actions(), plan);
  const PartSizes sizes = part_sizes_of(shape, share, options_);
  OfTensorGroup tensor(shape, share, sizes, plan);
  if (shape.mesh.size(Axis::tensor) > 1)
    for (int position = share.stage; position < share.schedule.positions(); position += share.schedule.stages)
      tensor.position(position);
  plan_sums(shape, share, plan);
  if (sizes.split()) tensor.whole_grads();
  plan.add({CommKind::all_reduce, DType::f64, Elements(4), shape.mesh.world()}, {OpPurpose::sums});
  return plan;
}

}  // namespace sc
