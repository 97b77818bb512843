// What lesson 11 holds and sends, known before a run, and its settings. No torch.
#pragma once

#include <string>

#include "common/model/part_plan.h"
#include "lessons/07_pipeline/pipeline_plan.h"

namespace sc {

struct CombinedOptions {
  std::string mesh = "auto";  // stages x data x tensor, as 2x2x2, or stages x data x context x tensor
  std::string schedule = "1f1b";
  std::int64_t chunks = 1;
  std::int64_t warmup = 0;
  ReplicaStates states = ReplicaStates::sharded;  // of the optimizer, in a data group
  TokenShare tokens = TokenShare::split;  // which tokens a tensor rank has between the halves of a block
  std::string split = "balanced";
  std::int64_t verify_replicas = 50;  // steps between comparisons of copies; 0: never
};

/// The mesh that the option asks for.
///   Errors  InputError 64: it does not have three or four sizes, or they are another world's.
Mesh mesh_of(const CombinedOptions& options, WorldSize world);
/// The run as a rank has it that has some of the tokens of each row; where its context group has one rank,
/// all. What follows is of that, but for plan_context_axis.
///   Errors  InputError 64: a row cannot be cut for so many context ranks.
RunShape part_of(const RunShape& shape);
/// What lesson 12's exchange (zigzag, ring) holds, and this rank's tokens of a step. `shape` is the run's.
void plan_context_axis(const RunShape& shape, const Share& share, MemoryPlan& plan);
/// The same as lesson 07's options.
PipelineOptions pipeline_options(const RunShape& shape, const CombinedOptions& options);
/// This rank's share of a schedule that pipedream has proven, and its part of each matrix.
///   Errors  as lesson 07's share_of; InputError 64: backward in halves beside tensor ranks.
Share share_of(const RunShape& shape, const CombinedOptions& options);
PartSizes part_sizes_of(const RunShape& shape, const Share& share, const CombinedOptions& options);
/// The buffers of a stage whose matrices are shared: those of plan_part_stage and TensorStage.
BufferShape part_stage_shape(const Share& share);

class CombinedPlans final : public PlansWith<CombinedPlans, CombinedOptions> {
 public:
  using PlansWith::PlansWith;
  [[nodiscard]] MemoryPlan memory_plan(const RunShape& shape) const override;
  [[nodiscard]] CommPlan comm_plan(const RunShape& shape) const override;
  [[nodiscard]] Contents contents(const RunShape& shape) const override;
  [[nodiscard]] Mesh mesh(WorldSize world) const override { return mesh_of(options_, world); }
  [[nodiscard]] Facts facts(const RunShape& shape) const override;

 private:
  [[nodiscard]] FieldTable<Options> table() const override;
};

}  // namespace sc
