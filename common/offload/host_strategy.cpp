#include "common/offload/host_strategy.h"

#include <algorithm>

#include "common/model/unit_views.h"
#include "common/strategy/pool_gathers.h"

namespace sc {
namespace {

// Unit 0 and the last unit have a buffer of gradients each, besides those that blocks take turns in.
constexpr std::size_t kGradBuffers = 2 + kGradPool;

void wait_all(std::vector<Ticket>& copies) {
  for (Ticket& copy : copies) copy.wait();
  copies.clear();
}

}  // namespace

// Empties the buffers: what is in them is from before the update, or from an evaluation.
void HostStrategy::release_params() {
  for (int& there : in_buffer_) {
    context_.timeline.gives_up_params(there);
    there = kNoUnit;
  }
}

void HostStrategy::wait_reduced(int unit) { wait_all(leaving_[grads_buffer_[unit]]); }

void HostStrategy::square(int unit) {
  at::Tensor squares = squares_.select(0, unit);
  squares.zero_();
  add_sums_of_squares({&slices_[unit].grads, 1}, squares);
}

void HostStrategy::add_squares() {
  at::Tensor all = sums_.select(0, kSquares);
  for (int unit = 0; unit < layout_.num_units(); ++unit)
    all.add_(squares_.select(0, unit).select(0, kSquares));
}

void HostStrategy::step_shard(int unit) {
  const auto mark = context_.timeline.mark(Pass::update, unit);
  const Workload& w = context_.shape.workload;
  OwnedSlice& s = slices_[unit];
  adamw_step(hyper_of(w.optim), context_.scalars, layout_.decay_ranges(unit, s.segment, s.range), s.grads,
             s.master, s.momentum, s.variance, w.precision.has_master() ? &s.params : nullptr);
}

bool HostStrategy::arrived(int unit) {
  return std::ranges::all_of(arriving_[unit], [](Ticket& copy) { return copy.ready(); });
}

void HostStrategy::wait_arrived(int unit) { wait_all(arriving_[unit]); }

HostStrategy::HostStrategy(RunContext& context, const HostOptions& options, const MemoryPlan& plan)
    : context_(context),
      buffers_(context.ledger, plan),
      layout_(context.shape.workload.model, context.shape.mesh.world()),
      passes_(context, layout_),
      sums_(passes_.sums()),
      gathered_(static_cast<std::size_t>(layout_.num_units())),
      arriving_(gathered_.size()),
      in_flight_(kGradBuffers),
      leaving_(kGradBuffers),
      complete_(kGradBuffers, kNoUnit),
      scratch_(kGradBuffers),
      squares_(buffers_.zeros("squares, scalars").view({-1, 4})),
      scalars_(squares_.select(0, layout_.num_units()), buffers_.zeros("scalars_host")),
      clock_{.delayed = options.update == UpdateKind::delayed,
             .warm_steps = options.warm_steps,
             .first_step = context.first_step},
      step_(context.first_step),
      resident_units_(static_cast<std::size_t>(options.resident)) {
  const MakeMemory window = window_of(context.comm);
  const at::Tensor params_full = buffers_.zeros("params_full", window),
                   params_shard = buffers_.zeros("params_shard", window);
  const bool is_whole = params_full.defined();
  const int units = layout_.num_units(), pool = pool_of(layout_, options);
  if (is_whole) params_full_ = unit_views(layout_, params_full);
  in_buffer_.assign(static_cast<std::size_t>(is_whole ? units : 2 + pool), kNoUnit);
  std::vector<at::Tensor> params(static_cast<std::size_t>(2 + pool)), grads(kGradBuffers);
  for (std::size_t b = 0; b < params.size(); ++b)
    params[b] = buffers_.zeros(name_of_buffer("params_full", b), window);
  const at::Tensor grads_shard = buffers_.zeros("grads_shard"),
                   block_grads = buffers_.zeros("grads_resident");
  const OptimizerState states(buffers_, "resident");
  for (std::size_t b = 0; b < kGradBuffers; ++b) {
    grads[b] = buffers_.zeros(name_of_buffer("grads_full", b));
    scratch_[b] = buffers_.zeros(name_of_buffer("grads_scratch", b));
  }
  // The number of elements of block_grads that earlier units have taken.
  std::int64_t begin = 0;
  for (int unit = 0; unit < units; ++unit) {
    const std::int64_t size = layout_.unit(unit).sharded_size;
    params_buffer_.push_back(is_whole ? static_cast<std::size_t>(unit) : buffer_of(layout_, pool, unit));
    grads_buffer_.push_back(buffer_of(layout_, kGradPool, unit));
    if (!is_whole) params_full_.push_back({params[params_buffer_.back()].narrow(0, 0, size), {}});
    grads_full_.push_back({grads[grads_buffer_.back()].narrow(0, 0, size), {}});
    OwnedSlice s = slice_of_rank(layout_, unit, context.comm.rank());
    s.params = params_shard.defined() ? part_of_arena(layout_, s, params_shard)
                                      : s.of_unit(params_full_[static_cast<std::size_t>(unit)].sharded);
    // The device updates a resident unit's slice after the norm, when another block has the unit's buffer.
    const bool resident = unit < options.resident;
    if (grads_shard.defined()) {
      s.grads = part_of_arena(layout_, s, grads_shard);
    } else if (resident && unit > 0) {
      s.grads = block_grads.narrow(0, begin, s.range.size());
      begin += s.range.size();
    } else {
      s.grads = s.of_unit(grads_full_.back().sharded);
    }
    if (resident) take_over(context, layout_, states, s);
    slices_.push_back(std::move(s));
  }
}

}  // namespace sc
