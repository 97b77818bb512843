#include "late_sums.h"

#include <ATen/ops/sqrt.h>
#include <spdlog/fmt/fmt.h>

#include "common/base/check.h"
#include "common/memory/planned_buffers.h"

namespace sc {

LateSums::LateSums(RunContext& context, const Endless& endless)
    : context_(context),
      endless_(endless),
      everyone_(context.comm.split(0)),
      updates_(endless.norm_lag + 1),
      results_(endless.result_lag + 2) {
  MemoryPlan plan;
  plan_late_sums(endless, plan);
  PlannedBuffers buffers(context.ledger, plan);
  const at::Tensor numbers = buffers.zeros("sums and results in flight"),
                   host = buffers.zeros("results_host");
  std::int64_t taken = 0;
  const auto take = [&](std::int64_t size) { return numbers.narrow(0, (taken += size) - size, size); };
  for (std::int64_t u = 0; u <= endless.norm_lag; ++u) updates_[u] = {take(4), take(4), {}};
  clip_by_ = take(4);
  for (std::int64_t step = 0; step < endless.result_lag + 2; ++step)
    results_[step] = {take(Endless::kResult), host.narrow(0, step * Endless::kResult, Endless::kResult), {}};
}

const at::Tensor& LateSums::leave(std::int64_t update) {
  Update& u = updates_[update];
  clip_by_.copy_(u.sums);  // its flag says whether this stage's gradient is finite
  u.own.copy_(u.sums);
  u.summed = everyone_->all_reduce(u.sums, {OpPurpose::sums});
  const std::int64_t known = update - endless_.norm_lag;
  if (known < 0) return clip_by_;
  note(known);
  at::Tensor& sums = updates_[known].sums;
  clip_by_[kSquares].copy_(sums[kSquares]);
  clip_by_[kNonFinite].add_(sums[kNonFinite]);
  sums.zero_();  // the next update adds up here
  return clip_by_;
}

// Adds an update to its step's numbers: losses and tokens are summed, the norm is the last update's.
void LateSums::note(std::int64_t update) {
  updates_[update].summed.wait();
  const at::Tensor& sums = updates_[update].sums;
  at::Tensor& result = results_[update / endless_.updates_a_step].numbers;
  if (update % endless_.updates_a_step == 0) result.zero_();
  for (const int i : {kLossSum, kTokens, kNonFinite}) result[i].add_(sums[i]);
  result[kSquares].copy_(sums[kSquares]);
  at::Tensor norm = result[Endless::kNorm];
  at::sqrt_out(norm, sums[kSquares]);
  noted_ = update + 1;
}

// While a run trains, a step's updates have been noted by now, since their norms have clipped others. To note
// the missing ones here would be a wait for stage 0, which no window may have.
void LateSums::send_result(std::int64_t step) {
  if (noted_ < (step + 1) * endless_.updates_a_step)
    throw ClaimError(fmt::format("step {} is not complete where every stage should know it", step));
  Result& r = results_[step];
  r.left = context_.copies.to_host(r.numbers, r.host, {OpPurpose::sums});
}

void LateSums::complete(std::int64_t step) {
  while (noted_ < (step + 1) * endless_.updates_a_step) note(noted_);
}

const at::Tensor& LateSums::result(std::int64_t step) {
  results_[step].left.wait_on_host();
  return results_[step].host;
}

void LateSums::reset() {
  updates_[0].summed.wait();
  updates_[0].sums.zero_();
  noted_ = 0;
}

}  // namespace sc
