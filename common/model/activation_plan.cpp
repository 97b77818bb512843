#include "common/model/activation_plan.h"

#include <algorithm>
#include <string>

#include "common/memory/stream_scratch.h"

namespace sc {
namespace {

// N = B T tokens of a micro-batch; d, H, e (bytes an element) as in docs/glossary.md.
struct Sizes {
  explicit Sizes(const RunShape& run)
      : B(run.workload.batch.micro),
        T(run.workload.batch.sequence),
        N(B * T),
        d(run.workload.model.width),
        H(run.workload.model.heads),
        e(size_of(run.workload.precision.dtype)),
        V(run.workload.model.vocab_padded()),
        chunk(std::min(run.workload.head_chunk, N)) {}
  std::int64_t B, T, N, d, H, e, V, chunk;
};

constexpr std::int64_t kF32 = 4;  // statistics and sums are fp32 whatever the dtype

// Everything that one block's backward reads, its input aside: ln1, qkv (3), att, mid, ln2, fc (4), gelu (4);
// four statistics a token, one lse a token and head.
std::int64_t block_bytes(const Sizes& s, bool with_gelu) {
  return s.e * s.N * s.d * (with_gelu ? 15 : 11) + kF32 * s.N * (4 + s.H);
}

// One thread's buffers of ATen's CPU attention, which walks rows in pieces of q and columns in pieces of kv.
// Source: ATen/native/cpu/FlashAttentionKernel.cpp; `reduced`: bytes a score once more in the 16-bit type.
struct AttentionScratch {
  AttentionScratch(const Sizes& s) {
    const std::int64_t q = std::min<std::int64_t>(s.T >= 768 ? 256 : s.T >= 192 ? 64 : 32, s.T);
    const std::int64_t kv = std::min<std::int64_t>(512, s.T);
    const std::int64_t reduced = s.e == kF32 ? 0 : s.e;
    forward = kF32 * (q * kv + 2 * q + q * (s.d / s.H)) + reduced * q * kv;
    backward = (kF32 + reduced) * 2 * q * kv + kF32 * q;
  }
  std::int64_t forward, backward;
};

// Attention and LayerNorm return fresh results, which are copied and dropped.
std::int64_t cpu_scratch(const Sizes& s, std::int64_t threads) {
  const AttentionScratch attention(s);
  const std::int64_t slab = s.e * s.N * s.d;
  return std::max({slab + kF32 * s.N * s.H + threads * attention.forward,  // out, lse
                   3 * slab + threads * attention.backward,                // dq, dk, dv
                   slab + kF32 * 2 * s.N,                                  // LayerNorm: y, mean, rstd
                   slab + kF32 * 2 * s.d * (1 + threads)});  // its backward: grad_x, two rows and a thread's
}

// An upper bound where ATen computes in fp32 beside 16-bit tensors: copies of a product's operands (fp32
// gradients), of the real logits and their logarithms, of LayerNorm's inputs; oneDNN packs up to 1.4 MB a
// thread.
std::int64_t wide_copies(const Sizes& s, const GptConfig& model, std::int64_t threads) {
  const std::int64_t block = kF32 * s.N * 5 * s.d, head = kF32 * s.chunk * (s.V + s.d);
  const std::int64_t softmax = 2 * kF32 * s.chunk * model.vocab + 16 * s.chunk;
  return std::max({block, head, softmax, 4 * s.e * s.N * s.d + 4 * kF32 * (s.N + s.d)}) + threads * (2 << 20);
}

// The reference's attention: at most four [B, H, T, T] in fp32, the mask, and operands in fp32.
std::int64_t written_out_attention(const Sizes& s) {
  return kF32 * 4 * s.B * s.H * s.T * s.T + s.T * s.T + kF32 * 8 * s.N * s.d;
}

}  // namespace

Bytes plan_saved_bytes(const RunShape& run) {
  const Sizes s(run);
  switch (run.workload.activations) {
    case Activations::keep:
      return Bytes(block_bytes(s, true));
    case Activations::recompute_gelu:
      return Bytes(block_bytes(s, false));
    case Activations::recompute:
      return Bytes(0);
  }
  return Bytes(0);
}

Bytes plan_block_grads_bytes(const RunShape& run) {
  const Sizes s(run);
  return Bytes(s.e * s.N * s.d * 8 + kF32 * 13 * s.d);  // of fc (4), mid and qkv (3); of vectors
}

Bytes plan_workspace_bytes(const RunShape& run, bool with_head) {
  const Sizes s(run);
  std::int64_t bytes = plan_block_grads_bytes(run).value() + s.e * s.N * s.d;  // and one temporary
  // ln_f's output and two statistics, logits.
  if (with_head) bytes += s.e * s.N * s.d + kF32 * s.N * 2 + s.e * s.chunk * s.V;
  if (run.workload.activations == Activations::recompute_gelu) bytes += s.e * s.N * s.d * 4;
  if (run.workload.activations == Activations::recompute) bytes += block_bytes(s, true);
  return Bytes(bytes);
}

Bytes plan_op_scratch_bytes(const RunShape& run) {
  const Sizes s(run);
  std::int64_t bytes = cpu_scratch(s, run.threads);
  if (s.e != kF32) bytes += wide_copies(s, run.workload.model, run.threads);
  if (run.device != DeviceKind::cpu) bytes = std::max(bytes, written_out_attention(s));
  if (op_scratch_is_exact(run)) bytes = 0;
  return Bytes(bytes);
}

Bytes plan_stream_scratch_bytes(const RunShape& run) {
  if (run.device == DeviceKind::cpu) return Bytes(0);
  const Sizes s(run);
  const Bytes attention(op_scratch_is_exact(run) ? kF32 * s.N * (s.d + s.H) : 0);
  return std::max(attention, kStreamScratch);
}

// The conditions of attention_uses_cudnn (ops_cuda.h), and a GPU that has it.
bool op_scratch_is_exact(const RunShape& run) {
  const Sizes s(run);
  const bool cudnn = run.cudnn_attention && s.e != kF32 && s.T > 1 && s.d / s.H % 8 == 0 && s.d / s.H <= 128;
  return run.device == DeviceKind::cuda && run.ops != OpsBackend::aten && cudnn && s.d <= kWidestFusedRow;
}

BufferShape whole_model(const GptConfig& model) { return {.blocks = static_cast<int>(model.layers)}; }

void plan_activation_buffers(const RunShape& run, MemoryPlan& plan) {
  plan_activation_buffers(run, whole_model(run.workload.model), plan);
}

void plan_activation_buffers(const RunShape& run, const BufferShape& shape, MemoryPlan& plan) {
  const Workload& w = run.workload;
  const std::int64_t tokens = w.batch.micro * w.batch.sequence;
  const Bytes slab = bytes_of(Elements(tokens * w.model.width), w.precision.dtype);
  const bool whole = shape == whole_model(w.model);
  const std::string blocks = std::to_string(shape.blocks),
                    sets = shape.sets == 1 ? "" : std::to_string(shape.sets) + " x ",
                    e = std::to_string(size_of(w.precision.dtype)) + " ";
  plan.add(
      Purpose::activations, "x",
      e + (whole ? "(L + 1)" : "(" + std::to_string(shape.inputs) + " + " + sets + blocks + ")") + " B T d",
      slab * (shape.inputs + shape.blocks * shape.sets));
  plan.add(Purpose::activations, "saved", (whole ? "L" : sets + blocks) + " saved",
           plan_saved_bytes(run) * shape.blocks * shape.sets);
  plan.add(Purpose::workspace, "workspace", shape.head ? "work + head" : "work",
           plan_workspace_bytes(run, shape.head));
  if (shape.pending > 0) {
    plan.add(Purpose::workspace, "pending", std::to_string(shape.pending) + " waiting",
             plan_block_grads_bytes(run) * shape.pending);
  }
  plan.add(Purpose::workspace, "grad_x", e + "x " + std::to_string(shape.grads) + " B T d",
           slab * shape.grads);
  plan.add(Purpose::workspace, "sums", "8 x 4", Bytes(4 * size_of(DType::f64)));
}

}  // namespace sc
