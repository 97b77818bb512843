// The device's memory of lesson 05: planned, and then allocated.
#include <algorithm>

#include "common/model/unit_views.h"
#include "offload.h"

namespace sc {
namespace {

// Buffers as in lesson 04: of parameters unit 0's, the last unit's and the blocks' pool, or with whole parameters one
// for every unit; of full gradients unit 0's, the last unit's, and two for the blocks.
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

}  // namespace

int Offload::pool_of(const ParamLayout& layout, const Options& options) {
  return std::min<int>(layout.num_blocks(), static_cast<int>(options.prefetch) + 1);
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

}  // namespace sc
