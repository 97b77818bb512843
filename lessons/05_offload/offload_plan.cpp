// What lesson 05 holds and sends, and its settings.
#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "common/base/check.h"
#include "common/base/control_group.h"
#include "common/strategy/gradient_dtype.h"
#include "offload.h"

namespace sc {

FieldTable<OffloadOptions> OffloadPlans::table() const {
  FieldTable<Options> table;
  table.add({"parameters", "",
             "on the device: all of them on every rank, or slices that are gathered unit by unit"},
            choice<ParametersOn>({{"whole", ParametersOn::whole}, {"sharded", ParametersOn::sharded}}),
            &Options::parameters);
  table.add({"update", "", "forward waits for the update before it, or computes one update behind"},
            choice<UpdateKind>({{"exact", UpdateKind::exact}, {"delayed", UpdateKind::delayed}}),
            &Options::update);
  table.add({"warm_steps", "steps", "delayed: so many steps are exact first"}, integer(0),
            &Options::warm_steps);
  table.add({"piece", "elements", "what is copied and updated at a time"}, integer(64), &Options::piece);
  table.add({"prefetch", "units", "how many units ahead of the one that computes are on their way"},
            integer(0, 16), &Options::prefetch);
  table.add({"overlap", "", "copies and updates run beside the device; off: each is waited for at once"},
            on_off(), &Options::overlap);
  table.add({"adam_threads", "threads", "a rank's for AdamW; 0: its share of the cores, less one"},
            integer(0, 1024), &Options::adam_threads);
  table.add({"link_mbps", "MB/s", "copies between device and host are no faster, on the CPU; 0: no limit"},
            real({.low = 0}), &Options::link_mbps);
  return table;
}

namespace {

// What is copied and updated at a time: a unit's slice, cut.
std::vector<Range> cut(Range slice, std::int64_t piece) {
  std::vector<Range> ranges;
  for (std::int64_t begin = slice.begin; begin < slice.end; begin += piece)
    ranges.push_back({begin, std::min(begin + piece, slice.end)});
  return ranges;
}

int cores() { return usable_cores(); }

}  // namespace

void Offload::refuse_contradictions(const RunShape& shape, const Options& options) {
  refuse_other_reduce_dtype(shape);
  if (options.update == UpdateKind::delayed && !options.overlap)
    throw InputError(ExitCode::usage, "update=delayed", "an update that is put off runs beside the device",
                     "overlap=on, or update=exact");
  if (options.link_mbps > 0 && shape.device == DeviceKind::cuda)
    throw InputError(ExitCode::usage, "link_mbps", "it is about ranks on the CPU, and these are GPUs",
                     "leave it out, or --device cpu");
}

int Offload::threads_of(const Options& options, WorldSize world) {
  if (options.adam_threads > 0) return static_cast<int>(options.adam_threads);
  return std::max<int>(1, cores() / static_cast<int>(to_int(world)) - 1);
}

std::vector<Piece> Offload::cut_pieces(const ParamLayout& layout, Rank rank, const Options& options) {
  std::vector<Piece> pieces;
  for (int unit = 0; unit < layout.num_units(); ++unit) {
    const OwnedSlice slice = slice_of_rank(layout, unit, rank);
    for (const Range& range : cut(slice.range, options.piece)) {
      Piece piece;
      piece.unit = unit, piece.range = range;
      piece.decay = layout.decay_ranges(unit, slice.segment, range);
      pieces.push_back(std::move(piece));
    }
  }
  return pieces;
}

MemoryPlan OffloadPlans::memory_plan(const RunShape& shape) const {
  Offload::refuse_contradictions(shape, options_);
  MemoryPlan plan;
  Offload::plan_device(shape, options_, {}, plan);
  Offload::plan_host(shape, options_, plan);
  return plan;
}

// Sums and gathers of lesson 04, or with whole parameters of lesson 02; each piece of this rank's slice goes down and
// up once, and the step's scalars go down.
CommPlan OffloadPlans::comm_plan(const RunShape& shape) const {
  CommPlan plan;
  const ParamLayout layout(shape.workload.model, shape.world);
  const PrecisionConfig& precision = shape.workload.precision;
  const std::int64_t micro = micro_batches_of(shape), blocks = layout.num_blocks(),
                     pool = Offload::pool_of(layout, options_);
  const bool whole = options_.parameters == ParametersOn::whole;
  for (int unit = 0; unit < layout.num_units(); ++unit) {
    const Elements size(layout.unit(unit).sharded_size);
    if (whole || unit == 0 || unit == layout.last_unit())
      plan.add(CommKind::all_gather, precision.dtype, size, shape.world);
    plan.add(CommKind::reduce_scatter, precision.grad_dtype, size, shape.world, micro);
  }
  for (const Piece& piece : Offload::cut_pieces(layout, shape.rank, options_)) {
    plan.add(CommKind::to_host, precision.grad_dtype, Elements(piece.range.size()), WorldSize{1});
    plan.add(CommKind::to_device, precision.dtype, Elements(piece.range.size()), WorldSize{1});
  }
  if (!whole)
    plan.add(CommKind::all_gather, precision.dtype, Elements(layout.unit(1).sharded_size), shape.world,
             blocks + (2 * micro - 1) * (blocks - pool));
  plan.add(CommKind::all_reduce, DType::f64, Elements(4),
           shape.world);  // loss, tokens, sum of squares, overflow
  plan.add(CommKind::to_host, DType::f64, Elements(4), WorldSize{1});  // lr, step, clip
  return plan;
}

std::string OffloadPlans::predict(const RunShape& shape) const {
  const int threads = Offload::threads_of(options_, shape.world),
            all = threads * static_cast<int>(to_int(shape.world));
  std::string text = fmt::format("the host's AdamW: {} thread{} a rank", threads, threads == 1 ? "" : "s");
  if (options_.adam_threads > 0 && all > cores())
    text += fmt::format("; with {} ranks more than the {} cores here, so that they take turns",
                        to_int(shape.world), cores());
  text += "\n";
  if (options_.update == UpdateKind::exact) return text;
  if (options_.warm_steps >= shape.workload.steps)
    return text + fmt::format("update=delayed: all {} steps are exact, since warm_steps={}\n",
                              shape.workload.steps, options_.warm_steps);
  return text + fmt::format("update=delayed: from step {} on forward computes one update behind\n",
                            options_.warm_steps);
}

Facts Offload::facts_of(const RunShape& shape, const Options& options) {
  Facts facts{.links = {.copy_mbps = options.link_mbps},
              .smaller = {"parameters=sharded", "parameters=sharded prefetch=0"},
              .no_graph = "the host computes in the middle of a step, and a graph cannot wait for it"};
  const Elements slice = ParamLayout(shape.workload.model, shape.world).arena_size() / to_int(shape.world);
  if (options.update == UpdateKind::delayed)
    facts.pending = sc::bytes_of(slice, shape.workload.precision.grad_dtype);
  return facts;
}

Facts OffloadPlans::facts(const RunShape& shape) const { return Offload::facts_of(shape, options_); }

}  // namespace sc
