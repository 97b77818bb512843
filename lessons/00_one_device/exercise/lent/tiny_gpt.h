// What exercises train: a small GPT-2 with AdamW, its state in flat arenas. Lent, not to be edited.
#pragma once

#include <functional>
#include <vector>

#include "common/data/batch.h"
#include "common/model/activation_buffers.h"
#include "common/optim/adamw.h"

namespace sc {

class TinyGpt {
 public:
  /// One replica, laid out for a world of that many ranks. fp32, on the CPU; nothing is initialised yet.
  TinyGpt(const Workload& workload, WorldSize world);

  /// Parameters become a function of the seed alone; moments 0.
  void init(std::uint64_t seed);
  /// Forward and backward of one micro-batch (its tokens and targets; its scale is not used).
  ///   grads()  receives the gradient of scale * (sum of the losses of the targets >= 0): written over what
  ///            is there, or added to it.
  ///   sums()   {sum of losses in nats, number of targets >= 0}: added to what is there.
  void forward_backward(const Batch& batch, double scale, Write write);
  /// One step of AdamW with the gradient in grads(). No clipping.
  void update(double lr);

  [[nodiscard]] at::Tensor& params() { return params_; }  // [P] fp32
  [[nodiscard]] at::Tensor& grads() { return grads_; }    // [P] fp32
  [[nodiscard]] at::Tensor& sums() { return sums_; }      // [2] fp64

  /// For checkers: called before a forward_backward, and before an update.
  struct Observer {
    std::function<void(const Batch&, double scale)> forward = [](const Batch&, double) {};
    std::function<void()> update = [] {};
  };
  void observe(Observer observer) { observer_ = std::move(observer); }

 private:
  Workload workload_;
  ParamLayout layout_;
  Ledger ledger_;
  Gpt gpt_;
  ActivationBuffers buffers_;
  at::Tensor params_, grads_, momentum_, variance_, sums_, scale_;
  std::vector<UnitTensors> params_unit_, grads_unit_;
  StepScalars scalars_;
  Observer observer_;
};

/// Targets of a micro-batch that have a loss.
std::int64_t count_targets(const Batch& batch);

}  // namespace sc
