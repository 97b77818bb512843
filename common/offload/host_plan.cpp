#include "common/offload/host_plan.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "common/base/check.h"
#include "common/base/control_group.h"
#include "common/model/activation_plan.h"
#include "common/strategy/gradient_dtype.h"
#include "common/strategy/pool_gathers.h"
#include "common/strategy/state_plan.h"

namespace sc {

std::vector<Piece> cut_pieces(const ParamLayout& layout, Rank rank, std::int64_t piece,
                              std::int64_t resident) {
  std::vector<Piece> pieces;
  for (int unit = static_cast<int>(resident); unit < layout.num_units(); ++unit) {
    const Range slice = layout.slice(unit, Segment::sharded, rank);
    for (std::int64_t begin = slice.begin; begin < slice.end; begin += piece) {
      const Range range{begin, std::min(begin + piece, slice.end)};
      pieces.push_back({unit, range, layout.decay_ranges(unit, Segment::sharded, range)});
    }
  }
  return pieces;
}

namespace {

// The number of elements in the resident units from `first` on.
std::int64_t resident_from(const ParamLayout& layout, const HostOptions& options, int first) {
  std::int64_t sum = 0;
  for (int unit = first; unit < options.resident; ++unit) sum += layout.unit(unit).sharded_size;
  return sum;
}

}  // namespace

Formula slice_on_host(const RunShape& shape, const HostOptions& options) {
  const ParamLayout layout = layout_of(shape);
  const Formula psi("P", layout.arena_size()), units("units", resident_from(layout, options, 0));
  return (options.resident == 0 ? psi : psi - units) / Formula("N", shape.mesh.world());
}

bool needs_no_norm(const Workload& workload) {
  return workload.optim.clip == 0 && workload.optim.nonfinite == OnNonFinite::stop &&
         workload.precision.dtype != DType::f16;
}

int pool_of(const ParamLayout& layout, const HostOptions& options) {
  return std::min<int>(layout.num_blocks(), static_cast<int>(options.prefetch) + 1);
}

int halves_of(const HostOptions& options) { return options.update == UpdateKind::early ? 2 : 1; }

void plan_device(const RunShape& shape, const HostOptions& options, const Keeps& keeps, MemoryPlan& plan) {
  const PrecisionConfig& precision = shape.workload.precision;
  const ParamLayout layout = layout_of(shape);
  const Formula psi("P", layout.arena_size()), ranks("N", shape.mesh.world()),
      layers("L", shape.workload.model.layers);
  const auto parameters = [&](const std::string& name, const Formula& elements) {
    plan.add({Purpose::parameters, name, elements, precision.dtype});
  };
  const auto gradients = [&](const std::string& name, const Formula& elements) {
    plan.add({Purpose::gradients, name, elements, precision.grad_dtype});
  };
  if (options.parameters == ParametersOn::whole) {
    parameters("params_full", psi);
  } else {
    if (keeps.parameters) parameters("params_shard", psi / ranks);
    const std::vector<UnitLayout> sizes = sizes_of(layout, pool_of(layout, options));
    for (std::size_t b = 0; b < sizes.size(); ++b)
      parameters(name_of_buffer("params_full", b), Formula("unit", sizes[b].sharded_size));
  }
  const bool several = keeps.gradients || micro_batches_of(shape) > 1;
  if (several) gradients("grads_shard", psi / ranks);
  // Unit 0's gradients lie in a buffer of their own; blocks take turns in theirs.
  if (!several && options.resident > 1)
    gradients("grads_resident", Formula("blocks", resident_from(layout, options, 1)) / ranks);
  if (options.resident > 0)
    plan_optimizer_state(shape, Formula("units", resident_from(layout, options, 0)) / ranks, plan,
                         "resident");
  const std::vector<UnitLayout> grads = sizes_of(layout, kGradPool);
  for (std::size_t b = 0; b < grads.size(); ++b) {
    const Formula unit("unit", grads[b].sharded_size);
    gradients(name_of_buffer("grads_full", b), unit);
    if (several) gradients(name_of_buffer("grads_scratch", b), unit / ranks);
  }
  plan.add({Purpose::workspace, "squares, scalars", 4 * (layers + 2) + 4, DType::f64});
  plan_activation_buffers(shape, plan);
  plan.add({Purpose::workspace, "scalars_host", 8 * halves_of(options), DType::f64, Place::pinned});
}

std::int64_t gathers_of(const ParamLayout& layout, const HostOptions& options, std::int64_t micro, int unit) {
  if (options.parameters == ParametersOn::whole) return 1;
  return gathers_of(layout, pool_of(layout, options), micro, unit);
}

CommPlan plan_operations(const RunShape& shape, const HostOptions& options) {
  CommPlan plan;
  const ParamLayout layout = layout_of(shape);
  const PrecisionConfig& precision = shape.workload.precision;
  const std::int64_t micro = micro_batches_of(shape);
  for (int unit = 0; unit < layout.num_units(); ++unit) {
    const Elements size(layout.unit(unit).sharded_size);
    plan.add({CommKind::all_gather, precision.dtype, size, shape.mesh.world()}, {OpPurpose::parameters, unit},
             gathers_of(layout, options, micro, unit));
    plan.add({CommKind::reduce_scatter, precision.grad_dtype, size, shape.mesh.world()},
             {OpPurpose::gradients, unit}, micro);
  }
  for (const Piece& piece : cut_pieces(layout, shape.rank, options.piece, options.resident)) {
    const Elements size(piece.range.size());
    plan.add({CommKind::to_host, precision.grad_dtype, size, WorldSize{1}},
             {OpPurpose::gradients, piece.unit});
    plan.add({CommKind::to_device, precision.dtype, size, WorldSize{1}}, {OpPurpose::parameters, piece.unit});
  }
  plan.add({CommKind::all_reduce, DType::f64, Elements(4), shape.mesh.world()}, {OpPurpose::sums});
  const int scalars = options.update == UpdateKind::early ? 2 : 1;  // a guess and the actual scalars
  plan.add({CommKind::to_host, DType::f64, Elements(4), WorldSize{1}}, {OpPurpose::scalars}, scalars);
  return plan;
}

Contents contents_of_device(const RunShape& shape, const HostOptions& options) {
  const ParamLayout layout(shape.workload.model, shape.mesh.world());
  Contents contents{.parameters = Extent::slice, .states = Extent::slice};
  contents.most_gradients = 2 + kGradPool;
  if (options.parameters == ParametersOn::sharded) contents.most_parameters = 2 + pool_of(layout, options);
  return contents;
}

Facts facts_of_host(const RunShape& shape, const HostOptions& options) {
  Facts facts{.links = {.copy_mbps = options.link_mbps},
              .smaller = {"parameters=sharded", "parameters=sharded prefetch=0"},
              .no_graph = "the host computes in the middle of a step, and a graph cannot wait for it"};
  const Elements slice = layout_of(shape).arena_size() / to_int(shape.mesh.world());
  if (options.update == UpdateKind::delayed)
    facts.pending = bytes_of(slice, shape.workload.precision.grad_dtype);
  if (options.update == UpdateKind::delayed && options.warm_steps >= shape.workload.steps)
    facts.notes = {fmt::format("update=delayed: all {} steps are exact, since warm_steps={}",
                               shape.workload.steps, options.warm_steps)};
  return facts;
}

int adam_threads(const HostOptions& options, WorldSize world) {
  if (options.adam_threads > 0) return static_cast<int>(options.adam_threads);
  return std::max<int>(1, usable_cores() / static_cast<int>(to_int(world)) - 1);
}

std::string updates_in_words(const RunShape& shape, const HostOptions& options) {
  const int threads = adam_threads(options, shape.mesh.world()),
            all = threads * static_cast<int>(to_int(shape.mesh.world()));
  std::string text = fmt::format("the host's AdamW: {} thread{} a rank", threads, threads == 1 ? "" : "s");
  if (options.adam_threads > 0 && all > usable_cores())
    text += fmt::format("; with {} ranks more than the {} cores here, so that they take turns",
                        to_int(shape.mesh.world()), usable_cores());
  text += "\n";
  if (options.update == UpdateKind::early)
    text += "update=early: a piece is updated as its gradient lands, and again where the norm clips it\n";
  if (options.update != UpdateKind::delayed || options.warm_steps >= shape.workload.steps) return text;
  return text + fmt::format("update=delayed: from step {} on forward computes one update behind\n",
                            options.warm_steps);
}

void refuse_contradictions(const RunShape& shape, const HostOptions& options) {
  refuse_other_reduce_dtype(shape);
  const std::int64_t units = shape.workload.model.layers + 2;
  if (options.resident >= units)
    refuse_setting("resident",
                   fmt::format("the model has {} units, and the host updates one of them at least", units),
                   fmt::format("resident={} at most, or lesson 04", units - 1));
  if (options.resident > 0 && options.update == UpdateKind::delayed)
    refuse_setting("resident", "the device would update at once what the host updates a step later",
                   "update=exact, or resident=0");
  if (options.link_mbps > 0 && shape.device == DeviceKind::cuda)
    throw InputError(ExitCode::usage, "link_mbps", "it is about ranks on the CPU, and these are GPUs",
                     "leave it out, or --device cpu");
}

}  // namespace sc
