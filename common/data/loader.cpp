#include "common/data/loader.h"

#include <algorithm>

#include "common/data/loader_plan.h"
#include "common/memory/planned_buffers.h"

namespace sc {
namespace {

std::span<std::int64_t> values(const at::Tensor& host) {
  return {host.mutable_data_ptr<std::int64_t>(), static_cast<std::size_t>(host.numel())};
}

}  // namespace

Loader::Loader(const Sampler& sampler, Ledger& ledger, DataShare share) : sampler_(sampler), share_(share) {
  const BatchConfig& batch = sampler.batch();
  const DeviceKind device = ledger.device().is_cpu() ? DeviceKind::cpu : DeviceKind::cuda;
  MemoryPlan plan;
  plan_loader(batch, sampler.evaluated_at_once(), share.ranks, device, plan);
  PlannedBuffers buffers(ledger, plan);
  tokens_ = buffers.zeros("tokens").view({-1, batch.micro, batch.sequence});
  targets_ = buffers.zeros("targets").view_as(tokens_);
  scale_ = buffers.zeros("scale").select(0, 0);
  if (device != DeviceKind::cpu)
    staging_ = buffers.zeros("tokens_staging").view({2, 2, -1, batch.micro, batch.sequence});
  for (std::int64_t m = 0; m < tokens_.size(0); ++m) {
    batches_.push_back({.tokens = tokens_.select(0, m), .targets = targets_.select(0, m), .scale = scale_});
  }
}

Loader::HostSide Loader::host_side(std::int64_t step) const {
  if (!staging_.defined()) return {tokens_, targets_};
  const at::Tensor of_parity = staging_.select(0, step % 2);
  return {of_parity.select(0, 0), of_parity.select(0, 1)};
}

template <class Write>
void Loader::fill(const HostSide& host, std::int64_t count, Write write) {
  for (std::int64_t m = 0; m < count; ++m)
    write(m, values(host.tokens.select(0, m)), values(host.targets.select(0, m)));
}

void Loader::fill_train(std::int64_t step) {
  const MicroBatchRun run = micro_batch_run(sampler_.micro_batches(), share_.rank, share_.ranks);
  filled_with_loss_.clear();
  fill(host_side(step), run.size, [&](std::int64_t m, auto to, auto next) {
    sampler_.fill(step, run.begin + m, to, next);
    filled_with_loss_.push_back(std::ranges::count_if(next, [](std::int64_t target) { return target >= 0; }));
  });
  filled_step_ = step;
  filled_targets_ = sampler_.step_targets(step);
}

void Loader::send(std::int64_t step, std::int64_t count) {
  if (!staging_.defined()) return;
  const HostSide host = host_side(step);
  tokens_.narrow(0, 0, count).copy_(host.tokens.narrow(0, 0, count), /*non_blocking=*/true);
  targets_.narrow(0, 0, count).copy_(host.targets.narrow(0, 0, count), /*non_blocking=*/true);
}

void Loader::prefetch(std::int64_t step) {
  if (staging_.defined()) fill_train(step);
}

std::span<const Batch> Loader::train(std::int64_t step, const LossFactor& factor) {
  const std::int64_t count = micro_batch_run(sampler_.micro_batches(), share_.rank, share_.ranks).size;
  const bool prefetched = staging_.defined() && filled_step_ == step;
  if (!prefetched) fill_train(step);
  send(step, count);
  scale_.fill_(factor.factor / static_cast<double>(filled_targets_));
  if (factor.loss_scale.defined()) scale_.mul_(factor.loss_scale);
  for (std::size_t m = 0; m < filled_with_loss_.size(); ++m) {
    batches_[m].with_loss = filled_with_loss_[m];
    batches_[m].loss_factor = factor.factor;
  }
  return std::span<const Batch>(batches_).first(static_cast<std::size_t>(count));
}

std::span<const Batch> Loader::validation() {
  const MicroBatchRun run = micro_batch_run(sampler_.validation_micro_batches(), share_.rank, share_.ranks);
  const std::int64_t free = filled_step_ + 1;  // another parity than the step that was prefetched
  fill(host_side(free), run.size, [&](std::int64_t m, auto tokens, auto targets) {
    sampler_.fill_validation(run.begin + m, tokens, targets);
  });
  send(free, run.size);
  return std::span<const Batch>(batches_).first(static_cast<std::size_t>(run.size));
}

std::span<const Batch> Loader::rows(const Rows& rows, std::int64_t round) {
  const auto count = static_cast<std::int64_t>(batches_.size());
  const std::int64_t micro = sampler_.batch().micro, sequence = sampler_.batch().sequence;
  const std::int64_t first = (round * share_.ranks + share_.rank) * count * micro;
  if (round * share_.ranks * count * micro >= rows.count()) return {};
  const std::int64_t free = filled_step_ + 1;
  fill(host_side(free), count,
       [&](std::int64_t m, std::span<std::int64_t> tokens, std::span<std::int64_t> targets) {
         std::ranges::fill(tokens, 0), std::ranges::fill(targets, kNoTarget);
         for (std::int64_t k = 0; k < micro; ++k) {
           const std::int64_t row = first + m * micro + k;
           if (row >= rows.count()) return;
           const auto at = static_cast<std::size_t>(k * sequence), size = static_cast<std::size_t>(sequence);
           rows.fill(row, tokens.subspan(at, size), targets.subspan(at, size));
         }
       });
  send(free, count);
  return batches_;
}

}  // namespace sc
