#include "common/offload/unit_buffers.h"

#include <algorithm>
#include <optional>

#include "common/model/unit_views.h"
#include "common/strategy/pool_gathers.h"

namespace sc {
namespace {

// Of gradients: unit 0's, the last unit's, and those that blocks take turns in.
constexpr std::size_t kGradBuffers = 2 + kGradPool;

void wait_all(std::vector<Ticket>& copies) {
  for (Ticket& copy : copies) copy.wait();
  copies.clear();
}

}  // namespace

bool UnitBuffers::arrived(int unit) {
  return std::ranges::all_of(arriving_[unit], [](Ticket& copy) { return copy.ready(); });
}

void UnitBuffers::wait_arrived(int unit) { wait_all(arriving_[unit]); }

at::Tensor UnitBuffers::taken(int unit) {
  int& there = in_buffer_[params_buffer_[unit]];
  timeline_.gives_up_params(there);
  there = unit;
  return params_[unit].sharded;
}

void UnitBuffers::release() {
  for (int& unit : in_buffer_) {
    timeline_.gives_up_params(unit);
    unit = -1;
  }
}

at::Tensor& UnitBuffers::sum_of(int unit, Write write) {
  const std::size_t buffer = grads_buffer_[unit];
  return in_flight_[buffer].lands_in(slices_[unit].grads, scratch_[buffer], write);
}

void UnitBuffers::wait_left(int unit) { wait_all(leaving_[grads_buffer_[unit]]); }

void UnitBuffers::step_resident(const RunContext& context, const ParamLayout& layout) {
  const Workload& w = context.shape.workload;
  for (OwnedSlice& s : std::span(slices_).first(resident_)) {
    const auto mark = timeline_.mark(Pass::update, s.unit);
    adamw_step(hyper_of(w.optim), context.scalars, layout.decay_ranges(s.unit, s.segment, s.range), s.grads,
               s.master, s.momentum, s.variance, w.precision.has_master() ? &s.params : nullptr);
  }
}

void UnitBuffers::square(int unit) {
  at::Tensor squares = squares_.select(0, unit);
  squares.zero_();
  add_sums_of_squares({&slices_[unit].grads, 1}, squares);
}

void UnitBuffers::add_squares(at::Tensor& sums) const {
  at::Tensor all = sums.select(0, kSquares);
  for (std::int64_t unit = 0; unit < squares_.size(0); ++unit)
    all.add_(squares_.select(0, unit).select(0, kSquares));
}

UnitBuffers::UnitBuffers(RunContext& context, const ParamLayout& layout, const HostOptions& options,
                         const Keeps& keeps)
    : timeline_(context.timeline),
      resident_(static_cast<std::size_t>(options.resident)),
      gathered_(static_cast<std::size_t>(layout.num_units())),
      arriving_(gathered_.size()),
      in_flight_(kGradBuffers),
      leaving_(kGradBuffers),
      scratch_(kGradBuffers) {
  const PrecisionConfig& precision = context.shape.workload.precision;
  const std::int64_t world = to_int(context.shape.mesh.world()), units = layout.num_units();
  const Elements whole = layout.arena_size(), slice = whole / world;
  const auto flat = [&](Purpose purpose, const std::string& name, std::int64_t n, DType dtype) {
    return context.ledger.zeros(purpose, name, {n}, dtype);
  };
  const at::Tensor small = flat(Purpose::workspace, "squares, scalars", 4 * units + 4, DType::f64);
  squares_ = small.narrow(0, 0, 4 * units).view({units, 4}), scalars_ = small.narrow(0, 4 * units, 4);

  const bool is_whole = options.parameters == ParametersOn::whole;
  std::vector<at::Tensor> params, grads;
  at::Tensor params_shard, grads_shard;
  if (is_whole) {
    params_ = unit_views(
        layout, zeros_in_window(context, Purpose::parameters, "params_full", whole, precision.dtype));
  } else {
    if (keeps.parameters)
      params_shard = zeros_in_window(context, Purpose::parameters, "params_shard", slice, precision.dtype);
    for (const std::int64_t n : sizes_of(layout, pool_of(layout, options)))
      params.push_back(zeros_in_window(context, Purpose::parameters,
                                       name_of_buffer("params_full", params.size()), Elements(n),
                                       precision.dtype));
  }
  in_buffer_.assign(is_whole ? static_cast<std::size_t>(units) : params.size(), -1);
  const bool own_slice = keeps.gradients || micro_batches_of(context.shape) > 1;
  if (own_slice) grads_shard = flat(Purpose::gradients, "grads_shard", slice.value(), precision.grad_dtype);
  at::Tensor block_grads;
  if (!own_slice && options.resident > 1)
    block_grads = flat(Purpose::gradients, "grads_resident", grads_resident(layout, options).value(),
                       precision.grad_dtype);
  std::optional<OptimizerState> states;
  if (options.resident > 0) states.emplace(context, slice_resident(layout, options), "resident");
  for (const std::int64_t n : sizes_of(layout, kGradPool)) {
    const std::size_t b = grads.size();
    grads.push_back(flat(Purpose::gradients, name_of_buffer("grads_full", b), n, precision.grad_dtype));
    if (own_slice)
      scratch_[b] =
          flat(Purpose::gradients, name_of_buffer("grads_scratch", b), n / world, precision.grad_dtype);
  }
  std::int64_t begin = 0;  // of block_grads
  for (int unit = 0; unit < layout.num_units(); ++unit) {
    const std::int64_t size = layout.unit(unit).sharded_size;
    params_buffer_.push_back(is_whole ? static_cast<std::size_t>(unit)
                                      : buffer_of(layout, pool_of(layout, options), unit));
    grads_buffer_.push_back(buffer_of(layout, kGradPool, unit));
    if (!is_whole) params_.push_back({params[params_buffer_.back()].narrow(0, 0, size), {}});
    grads_.push_back({grads[grads_buffer_.back()].narrow(0, 0, size), {}});
    OwnedSlice s = slice_of_rank(layout, unit, context.comm.rank());
    s.params = params_shard.defined() ? part_of_arena(layout, s, params_shard)
                                      : s.of_unit(params_[static_cast<std::size_t>(unit)].sharded);
    // What the device updates after the norm outlives the buffer that blocks take turns in.
    const bool resident = unit < options.resident;
    if (own_slice) {
      s.grads = part_of_arena(layout, s, grads_shard);
    } else if (resident && unit > 0) {
      s.grads = block_grads.narrow(0, begin, s.range.size());
      begin += s.range.size();
    } else {
      s.grads = s.of_unit(grads_.back().sharded);
    }
    if (resident) take_over(context, layout, *states, s);
    slices_.push_back(std::move(s));
  }
}

}  // namespace sc
