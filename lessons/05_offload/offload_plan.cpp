// What lesson 05 holds and sends, and its settings.
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <thread>

#include "common/base/check.h"
#include "common/model/unit_views.h"
#include "common/strategy/gradient_dtype.h"
#include "offload.h"

namespace sc {

FieldTable<OffloadOptions> Offload::fields() {
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

// Buffers as in lesson 04: of parameters unit 0's, the last unit's and the blocks' pool, or with whole parameters one
// for every unit; of full gradients unit 0's, the last unit's, and two for the blocks.
int pool_of(const ParamLayout& layout, const OffloadOptions& options) {
  return std::min<int>(layout.num_blocks(), static_cast<int>(options.prefetch) + 1);
}
std::size_t buffer_of(const ParamLayout& layout, int pool, int unit) {
  if (unit == 0) return 0;
  if (unit == layout.last_unit()) return 1;
  return static_cast<std::size_t>(2 + unit % pool);
}
constexpr int kGradPool = 2;

std::string name_of_buffer(const char* what, std::size_t buffer) {
  return std::string(what) + (buffer == 0 ? ", unit 0" : buffer == 1 ? ", last unit" : ", a block");
}

// Elements of the largest unit that uses each buffer.
std::vector<std::int64_t> sizes_of(const ParamLayout& layout, int pool) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(2 + pool));
  for (int unit = 0; unit < layout.num_units(); ++unit) {
    std::int64_t& size = sizes[buffer_of(layout, pool, unit)];
    size = std::max(size, layout.unit(unit).sharded_size);
  }
  return sizes;
}

// What is copied and updated at a time: a unit's slice, cut.
std::vector<Range> cut(Range slice, std::int64_t piece) {
  std::vector<Range> ranges;
  for (std::int64_t begin = slice.begin; begin < slice.end; begin += piece)
    ranges.push_back({begin, std::min(begin + piece, slice.end)});
  return ranges;
}

int cores() { return static_cast<int>(std::max(1U, std::thread::hardware_concurrency())); }

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

void Offload::plan_device(const RunShape& shape, const Options& options, const Keeps& keeps,
                          MemoryPlan& plan) {
  const PrecisionConfig& precision = shape.workload.precision;
  const ParamLayout layout(shape.workload.model, shape.world);
  const std::int64_t world = to_int(shape.world);
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
  const std::vector<std::int64_t> grads = sizes_of(layout, kGradPool);
  for (std::size_t b = 0; b < grads.size(); ++b) {
    add(Purpose::gradients, name_of_buffer("grads_full", b), " unit", Elements(grads[b]),
        precision.grad_dtype);
    if (several)
      add(Purpose::gradients, "grads_scratch", " unit/N", Elements(grads[b] / world), precision.grad_dtype);
  }
  add(Purpose::workspace, "squares, scalars", " (4 units + 4)", Elements(4 * layout.num_units() + 4),
      DType::f64);
  plan_activation_buffers(shape, plan);
  plan.add(Purpose::workspace, "scalars_host", "8 x 8", bytes_of(Elements(8), DType::f64), Place::pinned);
}

MemoryPlan Offload::memory_plan(const RunShape& shape, const Options& options) {
  refuse_contradictions(shape, options);
  MemoryPlan plan;
  plan_device(shape, options, {}, plan);
  const PrecisionConfig& precision = shape.workload.precision;
  const ParamLayout layout(shape.workload.model, shape.world);
  const Elements slice = layout.arena_size() / to_int(shape.world);
  const auto add = [&](Purpose purpose, const std::string& name, const std::string& of, Elements elements,
                       DType dtype, Place place) {
    plan.add(purpose, name, std::to_string(size_of(dtype)) + of, bytes_of(elements, dtype), place);
  };
  const int turns = options.update == UpdateKind::delayed ? 2 : 1;
  add(Purpose::gradients, "grads_host", turns == 2 ? " x 2 P/N" : " P/N", slice * turns, precision.grad_dtype,
      Place::pinned);
  add(Purpose::parameters, "params_host", " P/N", slice, precision.dtype, Place::pinned);
  if (precision.has_master()) add(Purpose::master, "master_host", " P/N", slice, DType::f32, Place::host);
  add(Purpose::momentum, "momentum_host", " P/N", slice, DType::f32, Place::host);
  add(Purpose::variance, "variance_host", " P/N", slice, DType::f32, Place::host);
  return plan;
}

// Sums and gathers of lesson 04, or with whole parameters of lesson 02; each piece of this rank's slice goes down and
// up once, and the step's scalars go down.
CommPlan Offload::comm_plan(const RunShape& shape, const Options& options) {
  CommPlan plan;
  const ParamLayout layout(shape.workload.model, shape.world);
  const PrecisionConfig& precision = shape.workload.precision;
  const std::int64_t micro = micro_batches_of(shape), blocks = layout.num_blocks(),
                     pool = pool_of(layout, options);
  const bool whole = options.parameters == ParametersOn::whole;
  for (int unit = 0; unit < layout.num_units(); ++unit) {
    const Elements size(layout.unit(unit).sharded_size);
    if (whole || unit == 0 || unit == layout.last_unit())
      plan.add(CommKind::all_gather, precision.dtype, size, shape.world);
    plan.add(CommKind::reduce_scatter, precision.grad_dtype, size, shape.world, micro);
  }
  for (const Piece& piece : cut_pieces(layout, shape.rank, options)) {
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

std::string Offload::predict(const RunShape& shape, const Options& options) {
  const int threads = threads_of(options, shape.world), all = threads * static_cast<int>(to_int(shape.world));
  std::string text = fmt::format("the host's AdamW: {} thread{} a rank", threads, threads == 1 ? "" : "s");
  if (options.adam_threads > 0 && all > cores())
    text += fmt::format("; with {} ranks more than the {} cores here, so that they take turns",
                        to_int(shape.world), cores());
  text += "\n";
  if (options.update == UpdateKind::exact) return text;
  if (options.warm_steps >= shape.workload.steps)
    return text + fmt::format("update=delayed: all {} steps are exact, since warm_steps={}\n",
                              shape.workload.steps, options.warm_steps);
  return text + fmt::format("update=delayed: from step {} on forward computes one update behind\n",
                            options.warm_steps);
}

namespace {

// [anchor: states-on-the-host]
// The host: 12 bytes a parameter of states (8 in fp32, where the master is what goes back), its gradient, and the
// rounded parameters. Pieces follow each other as units and their slices do.
std::unique_ptr<PieceUpdates> in_host_memory(const OffloadOptions& options, RunContext& context,
                                             const ParamLayout& layout, std::vector<Piece> pieces) {
  const PrecisionConfig& precision = context.shape.workload.precision;
  const std::int64_t n = layout.arena_size().value() / to_int(context.shape.world);
  const int turns = options.update == UpdateKind::delayed ? 2 : 1;
  const auto flat = [&](Purpose purpose, const char* name, std::int64_t size, DType dtype, Place place) {
    return context.ledger.zeros(purpose, name, {size}, dtype, place);
  };
  const at::Tensor grads =
                       flat(Purpose::gradients, "grads_host", n * turns, precision.grad_dtype, Place::pinned),
                   params = flat(Purpose::parameters, "params_host", n, precision.dtype, Place::pinned),
                   master = precision.has_master()
                                ? flat(Purpose::master, "master_host", n, DType::f32, Place::host)
                                : params,
                   momentum = flat(Purpose::momentum, "momentum_host", n, DType::f32, Place::host),
                   variance = flat(Purpose::variance, "variance_host", n, DType::f32, Place::host);
  std::int64_t begin = 0;
  for (Piece& p : pieces) {
    const auto part = [&](const at::Tensor& of, std::int64_t at = 0) {
      return of.narrow(0, at + begin, p.range.size());
    };
    for (int turn = 0; turn < turns; ++turn) p.grads[turn] = part(grads, turn * n);
    p.master = part(master), p.momentum = part(momentum), p.variance = part(variance);
    p.params = precision.has_master() ? part(params) : p.master;
    init_slice(layout, p.unit, Segment::sharded, p.range, context.shape.workload.seed, p.master);
    if (precision.has_master()) p.params.copy_(p.master);
    begin += p.range.size();
  }
  return std::make_unique<HostUpdate>(std::move(pieces), hyper_of(context.shape.workload.optim),
                                      Offload::threads_of(options, context.shape.world));
}

}  // namespace

Offload::Offload(RunContext& context, const Options& options)
    : Offload(context, options, {}, [&](const ParamLayout& layout, std::vector<Piece> pieces) {
        return in_host_memory(options, context, layout, std::move(pieces));
      }) {}

Offload::Offload(RunContext& context, const Options& options, const Keeps& keeps,
                 const MakeUpdates& make_updates)
    : context_(context),
      options_(options),
      keeps_(keeps),
      layout_(context.shape.workload.model, context.shape.world),
      passes_(context, layout_),
      sums_(passes_.sums()),
      gathered_(static_cast<std::size_t>(layout_.num_units())),
      fetched_(static_cast<std::size_t>(layout_.num_units())),
      in_flight_(2 + kGradPool),
      scratch_(2 + kGradPool),
      left_(2 + kGradPool),
      pieces_of_(static_cast<std::size_t>(layout_.num_units())) {
  const PrecisionConfig& precision = context.shape.workload.precision;
  const std::int64_t world = to_int(context.shape.world), units = layout_.num_units();
  const Elements whole = layout_.arena_size(), slice = whole / world;
  const auto flat = [&](Purpose purpose, const char* name, std::int64_t n, DType dtype,
                        Place place = Place::device) {
    return context.ledger.zeros(purpose, name, {n}, dtype, place);
  };
  const at::Tensor small = flat(Purpose::workspace, "squares, scalars", 4 * units + 4, DType::f64);
  squares_ = small.narrow(0, 0, 4 * units).view({units, 4}), scalars_ = small.narrow(0, 4 * units, 4);
  const at::Tensor scalars_host = flat(Purpose::workspace, "scalars_host", 8, DType::f64, Place::pinned);
  for (int turn = 0; turn < 2; ++turn) scalars_host_[turn] = scalars_host.narrow(0, 4 * turn, 4);

  // The device: parameters, and gradients for a moment.
  const bool is_whole = options.parameters == ParametersOn::whole;
  std::vector<at::Tensor> params, grads;
  at::Tensor params_shard, grads_shard;
  if (is_whole) {
    params_full_ = unit_views(
        layout_, zeros_in_window(context, Purpose::parameters, "params_full", whole, precision.dtype));
  } else {
    if (keeps.parameters)
      params_shard = zeros_in_window(context, Purpose::parameters, "params_shard", slice, precision.dtype);
    for (const std::int64_t n : sizes_of(layout_, pool_of(layout_, options)))
      params.push_back(
          zeros_in_window(context, Purpose::parameters, "params_full", Elements(n), precision.dtype));
  }
  resident_.assign(is_whole ? static_cast<std::size_t>(units) : params.size(), -1);
  const bool several = keeps.gradients || micro_batches_of(context.shape) > 1;
  if (several) grads_shard = flat(Purpose::gradients, "grads_shard", slice.value(), precision.grad_dtype);
  for (const std::int64_t n : sizes_of(layout_, kGradPool)) {
    grads.push_back(flat(Purpose::gradients, "grads_full", n, precision.grad_dtype));
    if (several)
      scratch_[grads.size() - 1] = flat(Purpose::gradients, "grads_scratch", n / world, precision.grad_dtype);
  }
  for (int unit = 0; unit < layout_.num_units(); ++unit) {
    const std::int64_t size = layout_.unit(unit).sharded_size;
    params_buffer_.push_back(is_whole ? static_cast<std::size_t>(unit)
                                      : buffer_of(layout_, pool_of(layout_, options), unit));
    grads_buffer_.push_back(buffer_of(layout_, kGradPool, unit));
    if (!is_whole) params_full_.push_back({params[params_buffer_.back()].narrow(0, 0, size), {}});
    grads_full_.push_back({grads[grads_buffer_.back()].narrow(0, 0, size), {}});
    OwnedSlice s = slice_of_rank(layout_, unit, context.comm.rank());
    s.params = params_shard.defined() ? part_of_arena(layout_, s, params_shard)
                                      : s.of_unit(params_full_[static_cast<std::size_t>(unit)].sharded);
    s.grads = several ? part_of_arena(layout_, s, grads_shard) : s.of_unit(grads_full_.back().sharded);
    slices_.push_back(std::move(s));
  }
  std::vector<Piece> pieces = cut_pieces(layout_, context.comm.rank(), options);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    Piece& p = pieces[i];
    const OwnedSlice& s = slices_[static_cast<std::size_t>(p.unit)];
    p.on_device = s.params.narrow(0, p.range.begin - s.range.begin, p.range.size());
    p.grads_on_device = s.grads.narrow(0, p.range.begin - s.range.begin, p.range.size());
    pieces_of_[static_cast<std::size_t>(p.unit)].push_back(i);
  }
  landed_.resize(pieces.size());
  update_ = make_updates(layout_, std::move(pieces));
}

Bytes Offload::pending_bytes(const RunShape& shape, const Options& options) {
  if (options.update != UpdateKind::delayed) return Bytes(0);
  const Elements slice = ParamLayout(shape.workload.model, shape.world).arena_size() / to_int(shape.world);
  return sc::bytes_of(slice, shape.workload.precision.grad_dtype);
}

}  // namespace sc
