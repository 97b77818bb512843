#include "lessons/00_one_device/exercise/lent/tiny_gpt.h"

#include <ATen/ops/full.h>

#include "common/model/unit_views.h"

namespace sc {
namespace {

RunShape gpt_shape(const Workload& workload, WorldSize world) {
  RunShape run;
  run.workload = workload;
  run.mesh = Mesh(world);
  return run;
}

}  // namespace

TinyGpt::TinyGpt(const Workload& workload, WorldSize world)
    : workload_(workload),
      layout_(workload.model, world),
      ledger_(at::kCPU),
      gpt_(gpt_shape(workload, world), layout_),
      buffers_(gpt_, ledger_) {
  const std::int64_t size = layout_.arena_size().value();
  params_ = ledger_.zeros(Purpose::parameters, "params", {size}, DType::f32);
  grads_ = ledger_.zeros(Purpose::gradients, "grads", {size}, DType::f32);
  momentum_ = ledger_.zeros(Purpose::momentum, "momentum", {size}, DType::f32);
  variance_ = ledger_.zeros(Purpose::variance, "variance", {size}, DType::f32);
  sums_ = buffers_.sums.narrow(0, 0, 2);
  scale_ = at::full({}, 0.0, at::kFloat);
  params_unit_ = unit_views(layout_, params_);
  grads_unit_ = unit_views(layout_, grads_);
  scalars_ = {at::full({}, 0.0, at::kFloat), at::full({}, 0, at::kLong), at::full({}, 1.0, at::kFloat)};
}

void TinyGpt::init(std::uint64_t seed) {
  for (int unit = 0; unit < layout_.num_units(); ++unit) init_unit(layout_, unit, seed, params_unit_[unit]);
  momentum_.zero_();
  variance_.zero_();
  scalars_.step.zero_();
}

void TinyGpt::forward_backward(const Batch& batch, double scale, Write write) {
  observer_.forward(batch, scale);
  scale_.fill_(scale);
  const int blocks = layout_.num_blocks(), last = layout_.last_unit(), head = gpt_.head_unit();
  gpt_.embed(params_unit_[0], batch.tokens, buffers_.x(0));
  for (int unit = 1; unit <= blocks; ++unit) {
    gpt_.forward_block(unit, params_unit_[unit], buffers_.x(unit - 1), buffers_.saved(unit), buffers_.ws,
                       buffers_.x(unit));
  }
  at::Tensor grad_head = gpt_.head_matrix(grads_unit_[head]);
  gpt_.head(gpt_.head_matrix(params_unit_[head]), params_unit_[last], buffers_.x(buffers_.last()),
            batch.targets, scale_, buffers_.grad_x[blocks % 2], grad_head, grads_unit_[last], write,
            buffers_.ws, buffers_.result);
  for (int unit = blocks; unit >= 1; --unit) {
    at::Tensor& grad_x = buffers_.grad_x[(unit - 1) % 2];
    gpt_.backward_input(unit, params_unit_[unit], buffers_.saved(unit), buffers_.grad_x[unit % 2],
                        buffers_.ws, buffers_.ws.grads, grad_x);
    gpt_.backward_weights(unit, buffers_.saved(unit), buffers_.ws, buffers_.ws.grads, grads_unit_[unit],
                          write);
  }
  const Write onto_head = workload_.model.tied ? Write::accumulate : write;
  gpt_.embed_backward(batch.tokens, buffers_.grad_x[0], grads_unit_[0], onto_head, write);
}

void TinyGpt::update(double lr) {
  observer_.update();
  scalars_.lr.fill_(lr);
  scalars_.step.add_(1);
  for (int unit = 0; unit < layout_.num_units(); ++unit) {
    const UnitLayout& u = layout_.unit(unit);
    at::Tensor momentum = momentum_.narrow(0, u.sharded_begin, u.sharded_size);
    at::Tensor variance = variance_.narrow(0, u.sharded_begin, u.sharded_size);
    adamw_step(hyper_of(workload_.optim), scalars_,
               layout_.decay_ranges(unit, Segment::sharded, {0, u.sharded_size}), grads_unit_[unit].sharded,
               params_unit_[unit].sharded, momentum, variance, nullptr);
  }
}

std::int64_t count_targets(const Batch& batch) {
  const std::int64_t* target = batch.targets.const_data_ptr<std::int64_t>();
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < batch.targets.numel(); ++i) count += target[i] >= 0 ? 1 : 0;
  return count;
}

}  // namespace sc
