#include "common/pipeline/share.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/pipeline/translated.h"
#include "common/strategy/state_plan.h"
#include "pipedream/cost_files.h"

namespace sc {
namespace {

// Reads the costs in a file; nullopt for "none".
std::optional<pipedream::Costs> costs_in(const std::string& key, const std::string& path, int stages) {
  if (path == "none") return {};
  return translated(key, [&] {
    const pipedream::Costs costs = pipedream::read_costs(path);
    pipedream::require_costs(costs, stages);
    return costs;
  });
}

// Refuses settings that slow a run down, because they work on the CPU alone.
void refuse_on_gpus(const RunShape& shape, const StageOptions& options) {
  if (shape.device == DeviceKind::cpu) return;
  const char* key = options.pace != "none" ? "pace" : options.link_ms > 0 ? "link_ms" : nullptr;
  if (key != nullptr)
    throw InputError(ExitCode::usage, key, "it is about ranks on the CPU, and these are GPUs",
                     "leave it out, or --device cpu");
}

}  // namespace

Share::Share(const RunShape& shape, const StageOptions& options, pipedream::Schedule proven, bool sharded)
    : schedule(std::move(proven)),
      stage(static_cast<int>(shape.at(Axis::stages))),
      replica(
          static_cast<int>(shape.at(Axis::data) * shape.mesh.size(Axis::context) + shape.at(Axis::context))),
      replicas(static_cast<int>(shape.mesh.size(Axis::data) * shape.mesh.size(Axis::context))),
      parts(cut_blocks(shape.workload, schedule.positions(), options.split, options.profile_in)),
      layout(shape.workload.model, WorldSize{replicas}, cut_of(shape)),
      first(stage == 0),
      last(stage + 1 == schedule.stages),
      begins(static_cast<std::size_t>(layout.num_units()), -1),
      whole_begins(begins),
      slots(assign_slots(schedule, stage)),
      costs(costs_in("costs", options.costs, schedule.stages)),
      pace(costs_in("pace", options.pace, schedule.stages)),
      shards(sharded ? replicas : 1) {
  refuse_on_gpus(shape, options);
  const GptConfig& model = shape.workload.model;
  std::int64_t size = 0;
  const auto hold = [&](int unit) {
    begins[static_cast<std::size_t>(unit)] = size;
    size += layout.unit(unit).sharded_size;
  };
  if (first) hold(0);
  for (int chunk = 0; chunk < schedule.chunks; ++chunk) {
    const Part& p = part(chunk * schedule.stages + stage);
    for (int unit = p.first; unit <= p.last(); ++unit) hold(unit);
    most_blocks = std::max(most_blocks, p.blocks);
  }
  if (last) hold(layout.last_unit());
  whole.begin = size;
  for (int unit = 0; unit < layout.num_units(); ++unit) {
    if (begin(unit) < 0) continue;
    whole_begins[static_cast<std::size_t>(unit)] = size;
    size += layout.unit(unit).whole_size;
  }
  whole.end = size;
  message = shape.workload.batch.micro * shape.workload.batch.sequence * model.width;
  if (model.tied) tied = layout.vocab_rows().size() * model.width;
  // If states are cut, the copy is as long as unit 0, so that a replica's slices of both are the same.
  if (last && !first) tied_copy = shards > 1 && model.tied ? layout.unit(0).sharded_size : tied;
  elements = Elements(size + tied_copy);
  const Pools& pools = slots.pools;
  buffers = {.first = 1,
             .blocks = most_blocks,
             .sets = pools.sets,
             .head = last,
             .inputs = pools.inputs,
             .grads = pending_slab(pools.pending, 0),
             .pending = pools.pending * most_blocks};
}

const Part& Share::part_of(int unit) const {
  return *std::ranges::find_if(parts, [&](const Part& part) { return unit <= part.last(); });
}

What Share::what(const pipedream::Action& message) const {
  using pipedream::Kind;
  const bool out = message.kind == Kind::send_activation || message.kind == Kind::receive_gradient,
             activation = message.kind == Kind::send_activation || message.kind == Kind::receive_activation;
  const int position = schedule.position(message) - (out ? 0 : 1);
  return {activation ? OpPurpose::activations : OpPurpose::activation_gradients, part(position).last()};
}

std::string Share::in_words(std::size_t index, const pipedream::Action& action) const {
  return fmt::format("stage {}, action {}: {}", stage, index, pipedream::to_text(action));
}

Computed computed_in(const Share& share, const pipedream::Action& action) {
  using pipedream::Kind;
  const Pass pass = action.kind == Kind::forward            ? Pass::forward
                    : action.kind == Kind::backward         ? Pass::backward
                    : action.kind == Kind::backward_input   ? Pass::backward_input
                    : action.kind == Kind::backward_weights ? Pass::backward_weights
                    : action.kind == Kind::step             ? Pass::update
                                                            : Pass::none;
  if (pass == Pass::none || pass == Pass::update) return {pass};
  return {pass, share.part(share.schedule.position(action)).first, action.microbatch};
}

Contents contents_of(const Share& share) {
  Contents contents;
  for (int chunk = 0; chunk < share.schedule.chunks; ++chunk) {
    const int position = chunk * share.schedule.stages + share.stage;
    UnitRange& units =
        contents.parts.emplace_back(UnitRange{share.part(position).first, share.part(position).last()});
    if (share.embeds(position)) units.first = 0;
    if (share.has_head(position)) ++units.last;
  }
  if (share.shards > 1) contents.states = Extent::slice;
  contents.most_sets = share.slots.pools.sets;
  contents.most_versions = share.slots.pools.weights;
  return contents;
}

}  // namespace sc
