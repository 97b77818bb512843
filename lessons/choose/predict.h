// The seconds of a step from its plans and a machine's rates. docs/records/choosing.md has each formula too.
#pragma once

#include "common/memory/plan.h"
#include "common/watch/comm_op.h"
#include "lessons/07_pipeline/pipeline_plan.h"
#include "lessons/08_weight_versions/weight_versions_plan.h"
#include "lessons/10_tensor_parallel/tensor_parallel_plan.h"
#include "lessons/11_combined/combined_plan.h"
#include "machine.h"

namespace sc::choose {

/// The seconds of one micro-batch's passes on one rank.
struct PassTimes {
  double forward = 0, backward = 0;
};
/// The seconds of the passes through `blocks` blocks, and the head.
///   FLOPs    forward, per token: a block 24 d^2 + 2 T d, the head 2 V d (as pipedream counts); backward
///            twice as many
///   again    activations=recompute computes each block's forward again; recompute_gelu moves 16 d more bytes
///            per token and block
///   Time     FLOPs of (tokens + start_tokens) / flops
PassTimes pass_times(const Workload& workload, std::int64_t blocks, bool head, const Rates& rates);

/// The seconds of a group's collective: a call, and its bytes at the group's rate. Gathers within a node are
/// made by copy engines, and take a copy's call.
double seconds_of(const Operation& op, const Rates& rates);
/// The seconds of products, and of messages that travel while they are computed.
double together(double compute, double messages, const Rates& rates);

/// The seconds of AdamW for so many parameters on a GPU: 30 bytes each over its memory (28, and 2 for the
/// norm).
double update_seconds(double parameters, const Rates& rates);

enum class Updates { on_gpu, on_host, on_host_early, on_host_late };
/// Which of a step's messages are hidden by which computation.
struct Overlap {
  // Whether gradients are summed in every micro-batch's backward, or only in the last one's.
  bool reduces_in_each = false;
  // Whether parameters are gathered in every forward and backward, or only in the step's first forward.
  bool gathers_in_each = false;
  std::int64_t slices = 0;  // into which ranks cut what they update; 0: one per rank
  Updates updates = Updates::on_gpu;
  std::int64_t resident = 0;  // units that the GPU updates where the host updates the others
};

/// The seconds of a step on a rank that has the whole model.
///   Passes    A pass takes the longer of its compute and its messages, and `taken` of the shorter one. What
///             nothing can hide comes on top: the sum of the first unit's gradients, with which backward
///             ends, and the gather with which forward begins. n messages of b bytes together take n
///             call_seconds + b / rate, the group's rate (Rates::rate). An all_reduce, also of replicas of
///             shards, belongs to the last micro-batch.
///   GPU       The update follows, also that of resident units.
///   Host      Passes take eager_host times as long, and the last backward takes max(itself and the copy of
///             unit 0's gradient, copies of all gradients).
///   Exact     The step's first forward waits for max(AdamW of all other parameters, disk, copies of
///             parameters).
///   Early     AdamW begins when backward has left the last block, and only unit 0, whose gradient comes
///             last, is waited for, unless it is resident; no step is clipped. Exact updates that depend on
///             no norm begin like this too, unless states are on a disk.
///   Late      The step takes max(passes between unit 0's copies, AdamW, copies, disk).
double step_seconds(const RunShape& shape, const CommPlan& plan, const Overlap& overlap, const Rates& rates);

/// The bytes that a rank sends to other nodes in a step: messages to a stage there, and its share of what its
/// node sends in a collective.
double node_bytes(const RunShape& shape, const CommPlan& plan, const Rates& rates);

/// The seconds of a flushed pipeline's step: pipedream::simulate of its schedule with these rates.
///   Step   AdamW, the tied matrix's sum, what the last backward does not hide of the gradients' sum over
///          replicas; with sharded states the gather of their parameters
double pipeline_seconds(const RunShape& shape, const PipelineOptions& options, const Rates& rates);
/// The seconds of a pipeline's window without a flush, in the steady state.
double endless_seconds(const RunShape& shape, const VersionOptions& options, const Rates& rates);

/// The seconds of a step of lesson 10. A half of a block is a gather (G), two products, a sum (S) of N d
/// elements; products take their FLOPs / t, of N + t part_start_tokens tokens.
///   lanes = 1  forward waits for G and S. The second matrix's weights hide backward's S, the first one's its
///   G.
///   lanes = 2  the other lane's first product hides a lane's S, its second one G; in backward all of the
///   other's products hide both.
///   Others     the loss' statistics, the sums of what every rank has: each a call, and its bytes over the
///              link
double tensor_seconds(const RunShape& shape, const CommPlan& plan, const TensorParallelOptions& options,
                      const Rates& rates);

/// The seconds of a step of lesson 11: pipeline_seconds of stages whose blocks take as long as lesson 10's in
/// one lane. Before the sums over data groups, the tensor group sums what all its ranks have.
double combined_seconds(const RunShape& shape, const CombinedOptions& options, const Rates& rates);
/// A lower bound for lessons 07 and 11: every micro-batch's time on the stage with the most blocks.
double stages_take_at_least(const RunShape& shape, TokenShare tokens, const Rates& rates);

}  // namespace sc::choose
