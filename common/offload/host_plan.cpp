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

// Of units [begin, end).
Elements slice_of_units(const ParamLayout& layout, std::int64_t begin, std::int64_t end) {
  std::int64_t sum = 0;
  for (std::int64_t unit = begin; unit < end; ++unit)
    sum += layout.slice(static_cast<int>(unit), Segment::sharded, Rank{0}).size();
  return Elements(sum);
}

}  // namespace

Elements slice_on_host(const ParamLayout& layout, const HostOptions& options) {
  return slice_of_units(layout, options.resident, layout.num_units());
}

bool needs_no_norm(const Workload& workload) {
  return workload.optim.clip == 0 && workload.optim.nonfinite == OnNonFinite::stop &&
         workload.precision.dtype != DType::f16;
}

Elements slice_resident(const ParamLayout& layout, const HostOptions& options) {
  return slice_of_units(layout, 0, options.resident);
}

Elements grads_resident(const ParamLayout& layout, const HostOptions& options) {
  return slice_of_units(layout, 1, options.resident);
}

std::size_t buffer_of(const ParamLayout& layout, int pool, int unit) {
  if (unit == 0) return 0;
  if (unit == layout.last_unit()) return 1;
  return static_cast<std::size_t>(2 + unit % pool);
}

int pool_of(const ParamLayout& layout, const HostOptions& options) {
  return std::min<int>(layout.num_blocks(), static_cast<int>(options.prefetch) + 1);
}

int halves_of(const HostOptions& options) { return options.update == UpdateKind::early ? 2 : 1; }

std::int64_t scalars_on_host(const HostOptions& options) { return 8 * halves_of(options); }

std::vector<std::int64_t> sizes_of(const ParamLayout& layout, int pool) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(2 + pool));
  for (int unit = 0; unit < layout.num_units(); ++unit) {
    std::int64_t& size = sizes[buffer_of(layout, pool, unit)];
    size = std::max(size, layout.unit(unit).sharded_size);
  }
  return sizes;
}

void plan_device(const RunShape& shape, const HostOptions& options, const Keeps& keeps, MemoryPlan& plan) {
  const PrecisionConfig& precision = shape.workload.precision;
  const ParamLayout layout = layout_of(shape);
  const std::int64_t world = to_int(shape.mesh.world());
  const Elements whole = layout.arena_size(), slice(whole.value() / world);
  const auto add = [&](Purpose purpose, const std::string& name, const std::string& of, Elements elements,
                       DType dtype) {
    plan.add(purpose, name, std::to_string(size_of(dtype)) + of, bytes_of(elements, dtype));
  };
  if (options.parameters == ParametersOn::whole) {
    add(Purpose::parameters, "params_full", " P", whole, precision.dtype);
  } else {
    if (keeps.parameters) add(Purpose::parameters, "params_shard", " P/N", slice, precision.dtype);
    const std::vector<std::int64_t> sizes = sizes_of(layout, pool_of(layout, options));
    for (std::size_t b = 0; b < sizes.size(); ++b)
      add(Purpose::parameters, name_of_buffer("params_full", b), " unit", Elements(sizes[b]),
          precision.dtype);
  }
  const bool several = keeps.gradients || micro_batches_of(shape) > 1;
  if (several) add(Purpose::gradients, "grads_shard", " P/N", slice, precision.grad_dtype);
  if (!several && options.resident > 1)
    add(Purpose::gradients, "grads_resident", " blocks/N", grads_resident(layout, options),
        precision.grad_dtype);
  if (options.resident > 0)
    plan_optimizer_state(shape, slice_resident(layout, options), plan, "units/N", "resident");
  const std::vector<std::int64_t> grads = sizes_of(layout, kGradPool);
  for (std::size_t b = 0; b < grads.size(); ++b) {
    add(Purpose::gradients, name_of_buffer("grads_full", b), " unit", Elements(grads[b]),
        precision.grad_dtype);
    if (several)
      add(Purpose::gradients, name_of_buffer("grads_scratch", b), " unit/N", Elements(grads[b] / world),
          precision.grad_dtype);
  }
  add(Purpose::workspace, "squares, scalars", " (4 (L + 2) + 4)", Elements(4 * layout.num_units() + 4),
      DType::f64);
  plan_activation_buffers(shape, plan);
  const std::int64_t scalars = scalars_on_host(options);
  plan.add(Purpose::workspace, "scalars_host", fmt::format("8 x {}", scalars),
           bytes_of(Elements(scalars), DType::f64), Place::pinned);
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
  const int scalars = options.update == UpdateKind::early ? 2 : 1;  // a guess, and the truth
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
