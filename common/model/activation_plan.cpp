#include "common/model/activation_plan.h"

#include <algorithm>
#include <string>

#include "common/memory/stream_scratch.h"

namespace sc {
namespace {

// One thread's buffers of ATen's CPU attention, which walks rows in pieces of q and columns in pieces of kv.
// Source: ATen/native/cpu/FlashAttentionKernel.cpp; `reduced`: bytes a score once more in the 16-bit type.
struct AttentionScratch {
  explicit AttentionScratch(const PartSizes& s) {
    const std::int64_t q = std::min<std::int64_t>(s.T >= 768 ? 256 : s.T >= 192 ? 64 : 32, s.T);
    const std::int64_t kv = std::min<std::int64_t>(512, s.T);
    const std::int64_t reduced = s.e == kFp32 ? 0 : s.e;
    forward = kFp32 * (q * kv + 2 * q + q * (s.d / s.heads)) + reduced * q * kv;
    backward = (kFp32 + reduced) * 2 * q * kv + kFp32 * q;
  }
  std::int64_t forward, backward;
};

// Attention and LayerNorm return fresh results, which are copied and dropped.
std::int64_t cpu_scratch(const PartSizes& s, std::int64_t threads) {
  const AttentionScratch attention(s);
  const std::int64_t slab = s.slab();
  return std::max({slab + kFp32 * s.N * s.heads + threads * attention.forward,  // out, lse
                   3 * slab + threads * attention.backward,                     // dq, dk, dv
                   slab + kFp32 * 2 * s.N,                                      // LayerNorm: y, mean, rstd
                   slab + kFp32 * 2 * s.d * (1 + threads)});  // its backward: grad_x, two rows and a thread's
}

// An upper bound where ATen computes in fp32 beside 16-bit tensors: copies of a product's operands (fp32
// gradients), of the real logits and their logarithms, of LayerNorm's inputs; oneDNN packs up to 1.4 MB a
// thread.
std::int64_t wide_copies(const PartSizes& s, const GptConfig& model, std::int64_t threads) {
  const std::int64_t block = kFp32 * s.N * 5 * s.d, head = kFp32 * s.chunk * (s.vocab.size() + s.d);
  const std::int64_t softmax = 2 * kFp32 * s.chunk * model.vocab + 16 * s.chunk;
  return std::max({block, head, softmax, 4 * s.slab() + 4 * kFp32 * (s.N + s.d)}) + threads * (2 << 20);
}

// The reference's attention: at most four [B, H, T, T] in fp32, the mask, and operands in fp32.
std::int64_t written_out_attention(const PartSizes& s) {
  return kFp32 * 4 * s.B * s.heads * s.T * s.T + s.T * s.T + kFp32 * 8 * s.N * s.d;
}

}  // namespace

Bytes plan_op_scratch_bytes(const RunShape& run) {
  const PartSizes s(run);
  std::int64_t bytes = cpu_scratch(s, run.threads);
  if (s.e != kFp32) bytes += wide_copies(s, run.workload.model, run.threads);
  if (run.device != DeviceKind::cpu) bytes = std::max(bytes, written_out_attention(s));
  if (op_scratch_is_exact(run)) bytes = 0;
  return Bytes(bytes);
}

Bytes plan_stream_scratch_bytes(const RunShape& run) {
  if (run.device == DeviceKind::cpu) return Bytes(0);
  const PartSizes s(run);
  const Bytes attention(op_scratch_is_exact(run) ? kFp32 * s.N * (s.d + s.heads) : 0);
  return std::max(attention, kStreamScratch);
}

// The conditions of attention_uses_cudnn (ops_cuda.h), and a GPU that has it.
bool op_scratch_is_exact(const RunShape& run) {
  const PartSizes s(run);
  const bool cudnn =
      run.cudnn_attention && s.e != kFp32 && s.T > 1 && s.d / s.heads % 8 == 0 && s.d / s.heads <= 128;
  return run.device == DeviceKind::cuda && run.ops != OpsBackend::aten && cudnn && s.d <= kWidestFusedRow;
}

BufferShape whole_model(const GptConfig& model, int grads) {
  return {.blocks = static_cast<int>(model.layers), .grads = grads};
}

void plan_activation_buffers(const RunShape& run, MemoryPlan& plan) {
  plan_activation_buffers(run, whole_model(run.workload.model), plan);
}

void plan_activation_buffers(const RunShape& run, const BufferShape& shape, MemoryPlan& plan) {
  const PartSizes s(run);
  const Activations mode = run.workload.activations;
  const bool whole = shape == whole_model(run.workload.model);
  const std::string blocks = std::to_string(shape.blocks),
                    sets = shape.sets == 1 ? "" : std::to_string(shape.sets) + " x ",
                    e = std::to_string(s.e) + " ";
  const auto add = [&](Purpose purpose, const char* name, const std::string& formula, std::int64_t size) {
    plan.add(purpose, name, formula, Bytes(size));
  };
  const std::int64_t saved = s.saved_bytes(mode == Activations::keep, /*kept=*/true);
  std::int64_t work = s.grads_bytes() + s.slab();                                       // and one temporary
  if (shape.head) work += s.slab() + kFp32 * s.N * 2 + s.e * s.chunk * s.vocab.size();  // ln_f's, logits
  if (mode == Activations::recompute_gelu) work += s.e * s.N * s.hidden;
  if (mode == Activations::recompute) work += s.saved_bytes(/*with_gelu=*/true, /*kept=*/true);
  add(Purpose::activations, "x",
      e + (whole ? "(L + 1)" : "(" + std::to_string(shape.inputs) + " + " + sets + blocks + ")") + " B T d",
      s.slab() * (shape.inputs + shape.blocks * shape.sets));
  add(Purpose::activations, "saved", (whole ? "L" : sets + blocks) + " saved",
      mode == Activations::recompute ? 0 : saved * shape.blocks * shape.sets);
  add(Purpose::workspace, "workspace", shape.head ? "work + head" : "work", work);
  if (shape.pending > 0)
    add(Purpose::workspace, "pending", std::to_string(shape.pending) + " waiting",
        s.grads_bytes() * shape.pending);
  add(Purpose::workspace, "grad_x", e + "x " + std::to_string(shape.grads) + " B T d",
      s.slab() * shape.grads);
  add(Purpose::workspace, "sums", "8 x 4", 4 * size_of(DType::f64));
}

namespace {

// What tensor ranks have, for each of `times` micro-batches.
//   slabs, blocks  how many [n, d] one has, and blocks, for the reader
// NOLINTNEXTLINE(readability-function-size): eight facts
void plan_parts(const RunShape& run, const PartSizes& s, const BufferShape& of, bool kept, std::int64_t times,
                const std::string& slabs, const std::string& blocks, MemoryPlan& plan) {
  const Activations mode = run.workload.activations;
  const std::string e = std::to_string(s.e) + " ";
  const auto add = [&](Purpose purpose, const char* name, const std::string& formula, std::int64_t size) {
    plan.add(purpose, name, times == 1 ? formula : std::to_string(times) + " (" + formula + ")",
             Bytes(times * size));
  };
  const auto work = [&](const char* name, const std::string& formula, std::int64_t size) {
    add(Purpose::workspace, name, formula, size);
  };
  const std::int64_t all = std::int64_t{of.sets} * of.blocks,
                     block = s.saved_bytes(mode != Activations::recompute_gelu, kept || !s.split());
  add(Purpose::activations, "x", e + slabs + " n d", s.own_slab() * (of.inputs + all));
  if (mode != Activations::recompute) add(Purpose::activations, "saved", blocks + " part", block * all);
  if (of.grads > 0) work("grad_x", e + "x " + std::to_string(of.grads) + " n d", s.own_slab() * of.grads);
  if (mode == Activations::recompute) work("recomputed", "part", block);
  if (mode == Activations::recompute_gelu) work("recomputed", e + "B T m", s.e * s.N * s.hidden);
  work("gathered", e + "x 4 B T d", 4 * s.slab());       // norms, two gradients, a summand
  if (s.split()) work("rows", e + "n d", s.own_slab());  // a sum
  work("block_grads", e + "B T (m + 4 a) + 4 (6 d + 3 a + m)", s.grads_bytes());
  if (!of.head) return;
  work("logits", e + "chunk v", s.e * s.chunk * s.vocab.size());
  work("statistics", "4 (2 n + 2 chunk (1 + t))", kFp32 * (2 * s.n() + 2 * s.chunk * (1 + s.ranks)));
}

}  // namespace

void plan_part_buffers(const RunShape& run, const PartSizes& s, bool kept, std::int64_t lanes,
                       MemoryPlan& plan) {
  plan_parts(run, s, whole_model(run.workload.model, /*grads=*/0), kept, lanes, "(L + 1)", "L", plan);
}

void plan_part_stage(const RunShape& run, const PartSizes& s, const BufferShape& of, MemoryPlan& plan) {
  const int blocks = of.sets * of.blocks;
  plan_parts(run, s, of, /*kept=*/false, /*times=*/1, "x " + std::to_string(of.inputs + blocks),
             std::to_string(blocks), plan);
}

}  // namespace sc
