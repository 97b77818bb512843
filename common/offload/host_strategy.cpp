#include "common/offload/unit_buffers.h"

#include <algorithm>

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

UnitBuffers::UnitBuffers(RunContext& context, PlannedBuffers& buffers, const ParamLayout& layout,
                         const HostOptions& options)
    : timeline_(context.timeline),
      resident_(static_cast<std::size_t>(options.resident)),
      gathered_(static_cast<std::size_t>(layout.num_units())),
      arriving_(gathered_.size()),
      in_flight_(kGradBuffers),
      leaving_(kGradBuffers),
      scratch_(kGradBuffers) {
  const std::int64_t units = layout.num_units();
  const at::Tensor small = buffers.zeros("squares, scalars");
  squares_ = small.narrow(0, 0, 4 * units).view({units, 4}), scalars_ = small.narrow(0, 4 * units, 4);

  const MakeMemory window = window_of(context.comm);
  const at::Tensor params_full = buffers.zeros("params_full", window),
                   params_shard = buffers.zeros("params_shard", window);
  const bool is_whole = params_full.defined();
  if (is_whole) params_ = unit_views(layout, params_full);
  const auto in_pool = static_cast<std::size_t>(2 + pool_of(layout, options));
  in_buffer_.assign(is_whole ? static_cast<std::size_t>(units) : in_pool, -1);
  std::vector<at::Tensor> params(in_pool), grads(kGradBuffers);
  for (std::size_t b = 0; b < in_pool; ++b)
    params[b] = buffers.zeros(name_of_buffer("params_full", b), window);
  const at::Tensor grads_shard = buffers.zeros("grads_shard"), block_grads = buffers.zeros("grads_resident");
  const OptimizerState states(buffers, "resident");
  for (std::size_t b = 0; b < kGradBuffers; ++b) {
    grads[b] = buffers.zeros(name_of_buffer("grads_full", b));
    scratch_[b] = buffers.zeros(name_of_buffer("grads_scratch", b));
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
    if (grads_shard.defined()) {
      s.grads = part_of_arena(layout, s, grads_shard);
    } else if (resident && unit > 0) {
      s.grads = block_grads.narrow(0, begin, s.range.size());
      begin += s.range.size();
    } else {
      s.grads = s.of_unit(grads_.back().sharded);
    }
    if (resident) take_over(context, layout, states, s);
    slices_.push_back(std::move(s));
  }
}

}  // namespace sc
