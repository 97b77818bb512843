// What lesson 05 takes from the ledger on the device and on the host, as places_plan.cpp says.
#include <algorithm>

#include "common/model/unit_views.h"
#include "device_buffers.h"
#include "offload.h"

namespace sc {

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

}  // namespace sc
