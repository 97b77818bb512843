// Bytes that a model, or a tensor rank's part of it, holds besides its parameters, by formula: worked out
// independently of the functions that allocate (activation_buffers.h). No torch.
#pragma once

#include "common/memory/plan.h"
#include "common/model/part_plan.h"

namespace sc {

/// The most that library operations allocate inside one call and free by its return (attention's per-thread
/// buffers, ATen's results before they are copied). The ledger does not count it; the witness allows so much.
///   CPU, fp32           the peak of a forward and backward, exact with one thread; with more an upper bound
///   (threads' buffers need not overlap).
///   CPU, 16 bit         an upper bound: ATen widens operands, oneDNN packs them.
///   CUDA, fused, cuDNN  0: the kernels' scratch is plan_stream_scratch_bytes. A step should then allocate
///   nothing, and a run says whether it did.
///   CUDA otherwise      an upper bound: ATen's written-out attention, ATen's fresh results.
Bytes plan_op_scratch_bytes(const RunShape& run);
/// The size of stream_scratch (memory/stream_scratch.h) on a GPU after every operation of a step has run:
/// cuDNN's workspace for attention's backward, which is fp32 sums of dQ and one sum per row and head, 4 B T
/// (d + H) bytes, and at least kStreamScratch. Exact to some hundred bytes (alignment, counters), measured
/// for heads of 64. There is no formula for the deterministic backward. CPU: 0.
Bytes plan_stream_scratch_bytes(const RunShape& run);
/// Whether plan_op_scratch_bytes is exact: on a GPU with our kernels, which take rows of up to
/// kWidestFusedRow elements, and with cuDNN's attention.
bool op_scratch_is_exact(const RunShape& run);
inline constexpr std::int64_t kWidestFusedRow = 2048;

/// The blocks that are computed with one set of buffers, and for how many micro-batches at a time.
struct BufferShape {
  int first = 1, blocks = 1;  // blocks first, first + 1, ...
  int sets = 1;               // micro-batches whose activations are kept at the same time
  bool head = true;           // the last unit is computed here too
  int inputs = 1;             // inputs of the first block: one per set, or more if they arrive ahead
  int grads = 2;              // gradients of x at the same time
  int pending = 0;            // blocks that wait for backward_weights while others compute
  bool operator==(const BufferShape&) const = default;
};
/// The shape of activation buffers for all blocks and the head, one micro-batch at a time.
BufferShape whole_model(const GptConfig& model, int grads = 2);

/// The buffer of a step's loss, tokens and squares (common/optim/grad_norm.h).
inline Buffer step_sums() { return {Purpose::workspace, "sums", 4, DType::f64}; }
void plan_activation_buffers(const RunShape& run, const BufferShape& shape, MemoryPlan& plan);
void plan_activation_buffers(const RunShape& run, MemoryPlan& plan);  // for the whole model
/// Adds PartBuffers for `lanes` micro-batches to the plan.
///   kept  rows gathered for the halves' norms are kept for backward
void plan_part_buffers(const RunShape& run, const PartSizes& sizes, bool kept, std::int64_t lanes,
                       MemoryPlan& plan);
/// Adds a tensor rank's ActivationBuffers for a stage, whose blocks gather for their norms again in backward.
void plan_part_stage(const RunShape& run, const PartSizes& sizes, const BufferShape& of, MemoryPlan& plan);

}  // namespace sc
