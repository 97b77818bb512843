// Seconds of a step from its plans and a machine's rates. Each formula stands in docs/choosing.md too.
#pragma once

#include "common/memory/plan.h"
#include "common/watch/comm_op.h"
#include "lessons/07_pipeline/pipeline_plan.h"
#include "lessons/08_weight_versions/weight_versions_plan.h"
#include "lessons/10_tensor_parallel/tensor_parallel_plan.h"
#include "lessons/11_combined/combined_plan.h"
#include "machine.h"

namespace sc::choose {

/// One micro-batch on one rank.
struct PassTimes {
  double forward = 0, backward = 0;
};
///   FLOPs    forward, a token: a block 24 d^2 + 2 T d, the head 2 V d (as pipedream counts); backward twice
///            as many
///   again    activations=recompute computes each block's forward again; recompute_gelu moves 16 d more bytes
///            a token and block
///   Time     FLOPs of (tokens + start_tokens) / flops
PassTimes pass_times(const Workload& workload, std::int64_t blocks, bool head, const Rates& rates);

/// A collective of a group's ranks: a call, and its bytes at the group's rate. Gathers within a node are made
/// by copy engines, and take their call.
double seconds_of(const Operation& op, const Rates& rates);
/// Products and messages that travel beside them.
double together(double compute, double messages, const Rates& rates);

/// AdamW of so many parameters on a GPU: 30 bytes each over its memory (28, and 2 for the norm).
double update_seconds(double parameters, const Rates& rates);

enum class Updates { on_gpu, on_host, on_host_early, on_host_late };
/// What of a step hides which messages.
struct Overlap {
  bool reduces_in_each = false;  // sums of gradients in every micro-batch's backward; else in the last one's
  bool gathers_in_each = false;  // gathers in every forward and backward; else in the step's first forward
  std::int64_t slices = 0;       // into which ranks cut what they update; 0: one for each rank
  Updates updates = Updates::on_gpu;
  std::int64_t resident = 0;  // units that the GPU updates where the host updates the others
};

/// A step of a rank that has the whole model.
///   A pass takes the longer of its compute and its messages, and `taken` of the shorter one. What nothing
///   can hide comes on top: the sum of the first unit's gradients, which backward ends with, and the gather
///   with which forward begins. n messages, b bytes together, take n call_seconds + b / rate, of a group's
///   rate (Rates::rate). An all_reduce, be it of replicas of shards, is of the last micro-batch.
///   GPU: then the update, also of resident units. Host: passes take eager_host times as long, and the last
///   backward takes max(itself and the copy of unit 0's gradient, copies of all gradients). Exact: the step's
///   first forward waits for max(AdamW of all other parameters, disk, copies of parameters). Early: AdamW
///   begins when backward has left the last block, and only unit 0, whose gradient comes last, is waited for,
///   unless it is resident; no step is clipped. Exact ones that depend on no norm begin so, too, unless
///   states are on a disk. Late: the step takes max(passes between unit 0's copies, AdamW, copies, disk).
double step_seconds(const RunShape& shape, const CommPlan& plan, const Overlap& overlap, const Rates& rates);

/// Bytes that a rank sends to other nodes in a step: messages to a stage there, and of a collective its share
/// of what its node sends.
double node_bytes(const RunShape& shape, const CommPlan& plan, const Rates& rates);

/// A flushed pipeline's step: pipedream::simulate of its schedule with these rates.
///   Step   AdamW, the tied matrix's sum, what of the gradients' sum over replicas the last backward does not
///          hide; with sharded states the gather of their parameters
double pipeline_seconds(const RunShape& shape, const PipelineOptions& options, const Rates& rates);
/// A window of one without a flush, in its steady state.
double endless_seconds(const RunShape& shape, const VersionOptions& options, const Rates& rates);

/// A step of lesson 10. A half of a block is a gather (G), two products, a sum (S) of N d elements; products
/// take their FLOPs / t, of N + t part_start_tokens tokens.
///   lanes = 1  forward waits for G and S. Backward hides S behind the second matrix's weights, G behind the
///              first one's.
///   lanes = 2  one's S hides behind the other's first product, its G behind the second one; backward hides
///              both behind all products of the other.
///   Others     the loss' statistics, the sums of what every rank has: each a call, and its bytes over the
///              link
double tensor_seconds(const RunShape& shape, const CommPlan& plan, const TensorParallelOptions& options,
                      const Rates& rates);

/// A step of lesson 11: pipeline_seconds of stages whose blocks take what lesson 10's do in one lane. Before
/// the sums over data groups the tensor group sums what all its ranks have.
double combined_seconds(const RunShape& shape, const CombinedOptions& options, const Rates& rates);
/// What neither is below: every micro-batch's time on the stage with the most blocks.
double stages_take_at_least(const RunShape& shape, TokenShare tokens, const Rates& rates);

}  // namespace sc::choose
