// Bytes that a model, or a tensor rank's part of it, holds beside its parameters, from formulas
// (common/model/activation_plan.cpp), not from the allocating functions (activation_buffers.h). No torch.
#pragma once

#include "common/memory/plan.h"
#include "common/model/part_plan.h"

namespace sc {

/// What library operations allocate inside one call and free before or with its return, at most (attention's
/// threads, ATen's fresh results before they are copied). Not in the ledger: the allocator witness allows
/// exactly this.
///   CPU, fp32           the peak of a forward and backward, exact with one thread; with more an upper bound
///                       (threads' buffers need not overlap).
///   CPU, 16 bit         an upper bound: ATen widens operands, oneDNN packs them.
///   CUDA, fused, cuDNN  0: what the kernels need is plan_stream_scratch_bytes. A step should then allocate
///                       nothing, and a run says whether it did.
///   CUDA otherwise      an upper bound: ATen's written-out attention, ATen's fresh results.
Bytes plan_op_scratch_bytes(const RunShape& run);
/// What stream_scratch (memory/stream_scratch.h) holds on a GPU once every operation of a step has run:
/// cuDNN's workspace for attention's backward, fp32 sums of dQ and a sum a row and head, 4 B T (d + H) bytes,
/// and never less than kStreamScratch. Exact to some hundred bytes (alignment, counters), as seen for heads
/// of 64; not for the deterministic backward, whose workspace no formula here knows. CPU: 0.
Bytes plan_stream_scratch_bytes(const RunShape& run);
/// Whether plan_op_scratch_bytes is exact: on a GPU with our kernels, which take rows of at most
/// kWidestFusedRow elements, and cuDNN's attention.
bool op_scratch_is_exact(const RunShape& run);
inline constexpr std::int64_t kWidestFusedRow = 2048;

/// What of the model is computed with them, and how much at a time.
struct BufferShape {
  int first = 1, blocks = 1;  // blocks first, first + 1, ...
  int sets = 1;               // micro-batches whose activations are kept at the same time
  bool head = true;           // the last unit is computed here, too
  int inputs = 1;             // inputs of the first block: one a set, or more where they come ahead
  int grads = 2;              // gradients of x at the same time
  int pending = 0;            // blocks that wait for backward_weights while others compute
  bool operator==(const BufferShape&) const = default;
};
/// All blocks and the head, one micro-batch at a time.
BufferShape whole_model(const GptConfig& model, int grads = 2);

/// A step's sums: common/optim/grad_norm.h.
inline Buffer step_sums() { return {Purpose::workspace, "sums", 4, DType::f64}; }
/// Adds what one device's ActivationBuffers take from the ledger, by formula.
void plan_activation_buffers(const RunShape& run, const BufferShape& shape, MemoryPlan& plan);
void plan_activation_buffers(const RunShape& run, MemoryPlan& plan);  // of the whole model
/// Adds what `lanes` PartBuffers take.
///   kept  what the halves' norms gathered stays for backward
void plan_part_buffers(const RunShape& run, const PartSizes& sizes, bool kept, std::int64_t lanes,
                       MemoryPlan& plan);
/// Adds what a tensor rank's ActivationBuffers take, whose blocks gather their norms again.
void plan_part_stage(const RunShape& run, const PartSizes& sizes, const BufferShape& of, MemoryPlan& plan);

}  // namespace sc
