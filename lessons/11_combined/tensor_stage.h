// What a stage of lesson 07 computes with where several ranks share its matrices: lesson 10's TensorLane, in
// the buffers that the actions' slots name. Where a stage has one rank, gpt_layers does the same.
#pragma once

#include "common/pipeline/layers.h"
#include "lessons/10_tensor_parallel/tensor_lane.h"

namespace sc {

class TensorStage final : public Layers {
 public:
  /// `group` are the ranks that share this stage's matrices. Bytes: plan_part_stage of
  /// part_stage_shape(share).
  TensorStage(const RunContext& context, Communicator& group, const Share& share, const PartSizes& sizes);
  void forward(const StageVectors& v, int position, const at::Tensor& tokens, const Slot& slot) override;
  void head(const StageVectors& v, const at::Tensor& targets, const at::Tensor& scale, const Slot& slot,
            Write write, at::Tensor& sums) override;
  /// Computes both halves at once: collectives travel during products of weights, which cannot come later.
  void backward(const StageVectors& v, int unit, const Slot& slot, Write write, Halves halves) override;
  void embed_backward(const StageVectors& v, const at::Tensor& tokens, const Slot& slot,
                      Write write) override;
  void head_loss(const StageVectors& v, const at::Tensor& targets, const Slot& slot,
                 at::Tensor& sums) override;
  [[nodiscard]] at::Tensor& input(const Slot& slot) override;
  [[nodiscard]] at::Tensor& output(const Slot& slot) override { return set(slot).x.back(); }
  [[nodiscard]] at::Tensor& gradient(int of_pool) override {
    return buffers_.grad_x[static_cast<std::size_t>(of_pool)];
  }
  [[nodiscard]] at::Tensor& sums() override { return sums_; }
  [[nodiscard]] const at::Tensor& last_gradient() const override { return *last_; }
  [[nodiscard]] GptHalves& model() override { return parts_; }

 private:
  [[nodiscard]] ActivationSet& set(const Slot& slot) {
    return buffers_.sets[static_cast<std::size_t>(slot.set)];
  }
  void begin(const StageVectors& v, const Part& part, const Slot& slot);

  const Share& share_;
  GptParts parts_;
  ActivationBuffers buffers_;
  TensorLane lane_;
  at::Tensor sums_;         // [4] fp64
  const at::Tensor* last_;  // the gradient that backward has come to
};

}  // namespace sc
