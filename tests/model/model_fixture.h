// A whole model with its buffers, stepped as 00_one_device steps it: embed, blocks, head, blocks back,
// embedding.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "common/model/activation_buffers.h"
#include "common/model/gpt.h"
#include "common/model/unit_views.h"

namespace sc {

inline RunShape tiny_run() {
  RunShape run;  // the defaults are four_blocks.json's
  return run;
}

/// Tokens [B, T] int64 below `vocab`, a function of `seed`.
inline at::Tensor some_tokens(std::int64_t rows, std::int64_t length, std::int64_t vocab,
                              std::uint64_t seed) {
  at::Tensor t = at::arange(rows * length, at::kLong);
  auto* data = t.mutable_data_ptr<std::int64_t>();
  std::uint64_t state = seed * 2 + 1;
  for (std::int64_t i = 0; i < t.numel(); ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    data[i] = static_cast<std::int64_t>((state >> 33) % static_cast<std::uint64_t>(vocab));
  }
  return t.view({rows, length});
}

/// max |a - b| / max |b|: the measure of every comparison with outside truth.
inline double relative_error(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  return ((x - y).abs().max() / y.abs().max()).item<double>();
}

class Model {
 public:
  explicit Model(const RunShape& run, WorldSize world = WorldSize{1}, std::int64_t persist_below = 0,
                 std::uint64_t seed = 1)
      : ledger(run.device == DeviceKind::cpu ? at::kCPU : at::kCUDA),
        layout(run.workload.model, world, persist_below),
        gpt(run, layout),
        params(arena(run.workload.precision.dtype)),
        grads(arena(run.workload.precision.grad_dtype)),
        buffers(gpt, ledger) {
    // NaN shows elements that a function does not write.
    for (const UnitTensors& g : grads) {
      g.sharded.fill_(std::numeric_limits<double>::quiet_NaN());
      if (g.whole.defined()) g.whole.fill_(std::numeric_limits<double>::quiet_NaN());
    }
    for (int unit = 0; unit < layout.num_units(); ++unit) init_unit(layout, unit, seed, params[unit]);
  }

  /// Runs one micro-batch, whose gradients overwrite `grads` or are added; the loss is in buffers.result.
  void forward_backward(const at::Tensor& tokens, const at::Tensor& targets, const at::Tensor& scale,
                        Write write) {
    forward(tokens);
    const int blocks = layout.num_blocks(), last = layout.last_unit();
    at::Tensor grad_head = gpt.head_matrix(grads[gpt.head_unit()]);
    gpt.head(gpt.head_matrix(params[gpt.head_unit()]), params[last], buffers.x(blocks), targets, scale,
             buffers.grad_x[blocks % 2], grad_head, grads[last], write, buffers.ws, buffers.result);
    for (int unit = blocks; unit >= 1; --unit) {
      gpt.backward_input(unit, params[unit], buffers.saved(unit), buffers.grad_x[unit % 2], buffers.ws,
                         buffers.ws.grads, buffers.grad_x[(unit - 1) % 2]);
      gpt.backward_weights(unit, buffers.saved(unit), buffers.ws, buffers.ws.grads, grads[unit], write);
    }
    const bool tied = layout.config().tied;
    gpt.embed_backward(tokens, buffers.grad_x[0], grads[0], tied ? Write::accumulate : write, write);
  }

  void forward(const at::Tensor& tokens) {
    gpt.embed(params[0], tokens, buffers.x(0));
    for (int unit = 1; unit <= layout.num_blocks(); ++unit) {
      gpt.forward_block(unit, params[unit], buffers.x(unit - 1), buffers.saved(unit), buffers.ws,
                        buffers.x(unit));
    }
  }

  /// Calls f(unit, tensor's name) for every named tensor.
  template <class F>
  void for_each_tensor(const F& f) const {
    for (int unit = 0; unit < layout.num_units(); ++unit) {
      for (const ParamTensor& t : layout.unit(unit).tensors) f(unit, t.name);
    }
  }
  [[nodiscard]] at::Tensor grad(int unit, const std::string& name) const {
    return gpt.view(unit, grads[unit], name);
  }
  [[nodiscard]] at::Tensor param(int unit, const std::string& name) const {
    return gpt.view(unit, params[unit], name);
  }
  [[nodiscard]] double loss() const { return buffers.result.loss_sum.item<double>(); }

  Ledger ledger;
  ParamLayout layout;
  Gpt gpt;
  std::vector<UnitTensors> params, grads;
  ActivationBuffers buffers;

 private:
  std::vector<UnitTensors> arena(DType dtype) {
    const auto make = [&](Segment s) {
      return ledger.zeros(Purpose::parameters, "arena", {layout.arena_size(s).value()}, dtype);
    };
    return unit_views(layout, make(Segment::sharded),
                      layout.arena_size(Segment::whole).value() > 0 ? make(Segment::whole) : at::Tensor());
  }
};

}  // namespace sc
