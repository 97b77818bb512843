// Lesson 02: ZeRO-1. Every rank still holds all parameters and all gradients, but the optimizer's state only
// of one slice of each unit: it updates that slice and gets the others from their owners.
//   Source: Rajbhandari et al., ZeRO, arXiv:1910.02054, section 5.1 (P_os).
#pragma once

#include <vector>

#include "common/config/field_table.h"
#include "common/model/activation_buffers.h"
#include "common/run/strategy.h"

namespace sc {

struct Zero1Options {
  bool overlap = true;  // reduce behind backward, publish under forward; off: wait for each at once
};

class Zero1 {
 public:
  using Options = Zero1Options;
  static FieldTable<Options> fields();
  static MemoryPlan memory_plan(const RunShape& shape, const Options& options);
  static CommPlan comm_plan(const RunShape& shape, const Options& options);

  Zero1(RunContext& context, const Options& options);
  StepResult train_step(std::span<const Batch> micro_batches);
  /// After it every rank holds all parameters of the last update.
  void settle();
  double evaluate(std::span<const Batch> batches);
  void visit_state(StateVisitor& visitor);
  void after_step(std::int64_t) {}
  [[nodiscard]] const ParamLayout& layout() const { return layout_; }

 private:
  void forward(const Batch& batch);
  void head(const Batch& batch, Write write);
  void backward_block(int unit, Write write);
  void embed_backward(const Batch& batch, Write write);
  void reduce_grads(int unit);
  void wait_reduced();
  void global_norm();
  void step_shard(int unit);
  void publish_params();
  void wait_published(int unit);
  [[nodiscard]] Range mine(int unit) const;

  RunContext& context_;
  Options options_;
  ParamLayout layout_;
  Gpt gpt_;
  at::Tensor params_full_, grads_full_;                        // arenas: all units, on every rank
  at::Tensor master_shard_, momentum_shard_, variance_shard_;  // this rank's slices of all units
  std::vector<UnitTensors> params_, grads_;                    // the units' views
  // The units' slices; those of parameters and gradients lie inside the full ones.
  std::vector<at::Tensor> params_slice_, grads_slice_, master_slice_, momentum_slice_, variance_slice_;
  std::vector<Ticket> reduced_;    // by unit
  std::vector<Ticket> published_;  // by unit
  ActivationBuffers buffers_;
};

}  // namespace sc
