#include "common/model/activation_plan.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "common/memory/stream_scratch.h"
#include "common/model/block_list.h"

namespace sc {
namespace {

// The buffers of one thread in ATen's CPU attention, which walks rows in pieces of q and columns in pieces of
// kv; `reduced` are the bytes of scores that a 16-bit dtype stores once more.
// Source: ATen/native/cpu/FlashAttentionKernel.cpp.
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

// What a call allocates on the CPU, fp32: attention and LayerNorm return tensors, copied and dropped.
std::int64_t cpu_scratch(const PartSizes& s, std::int64_t threads) {
  const AttentionScratch attention(s);
  const std::int64_t slab = s.slab();
  return std::max({slab + kFp32 * s.N * s.heads + threads * attention.forward,  // attention: out, lse
                   3 * slab + threads * attention.backward,                     // its backward: dq, dk, dv
                   slab + kFp32 * 2 * s.N,                                      // LayerNorm: y, mean, rstd
                   // LayerNorm's backward returns grad_x and two rows, and adds with two rows per thread.
                   slab + kFp32 * 2 * s.d * (1 + threads)});
}

// An upper bound for what ATen widens to fp32 with 16-bit tensors: copies of a product's operands (fp32
// gradients), of the real logits and their logarithms, of LayerNorm's inputs. oneDNN packs 1.4 MB per thread.
std::int64_t wide_copies(const PartSizes& s, const GptConfig& model, std::int64_t threads) {
  const std::int64_t block = kFp32 * s.N * 5 * s.d, head = kFp32 * s.chunk * (s.vocab.size() + s.d);
  const std::int64_t softmax = 2 * kFp32 * s.chunk * model.vocab + 16 * s.chunk;
  return std::max({block, head, softmax, 4 * s.slab() + 4 * kFp32 * (s.N + s.d)}) + threads * (2 << 20);
}

// The bytes of the reference's attention: at most four [B, H, T, T] in fp32, the mask, and operands in fp32.
std::int64_t written_out_attention(const PartSizes& s) {
  return kFp32 * 4 * s.B * s.heads * s.T * s.T + s.T * s.T + kFp32 * 8 * s.N * s.d;
}

/// The Maker of BlockList (block_list.h) that counts bytes and allocates nothing.
struct Nothing {};
struct Counter {
  using Tensor = Nothing;
  const PartSizes& s;
  mutable std::int64_t bytes = 0;
  [[nodiscard]] Nothing rows(std::int64_t count, std::int64_t columns) const {
    bytes += s.e * count * columns;
    return {};
  }
  [[nodiscard]] Nothing f32(const std::vector<std::int64_t>& shape) const {
    bytes += std::accumulate(shape.begin(), shape.end(), kFp32, std::multiplies<>());
    return {};
  }
  [[nodiscard]] Nothing shared_rows() const { return rows(s.N, s.d); }
  [[nodiscard]] GatheredRowsOf<Nothing> gathered_rows() const { return {rows(s.N, s.d), {}}; }
  [[nodiscard]] const Counter& named(const char* /*name*/) const { return *this; }
};

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

// This holds under the conditions of attention_uses_cudnn (ops_cuda.h), on a GPU that has cuDNN's kernel.
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
  const DType dtype = run.workload.precision.dtype;
  const bool whole = shape == whole_model(run.workload.model);
  const Formula x = Formula("B", s.B) * Formula("T", s.T) * Formula("d", s.d), sets = shape.sets,
                of_set = whole ? Formula("L", shape.blocks) : Formula(shape.blocks),
                blocks = shape.sets == 1 ? of_set : sets * of_set;
  const BlockList<Counter> list{s, run.workload.activations, /*part=*/false};
  const Counter of_saved{s}, of_grads{s}, of_work{s}, of_all{s};
  (void)list.saved(of_saved, nullptr);
  (void)list.grads(of_grads);
  (void)list.workspace(of_work, {}, nullptr, /*head=*/false);
  (void)list.workspace(of_all, {}, nullptr, /*head=*/true);
  const Formula saved("saved", of_saved.bytes), waiting("waiting", of_grads.bytes),
      work("work", of_work.bytes), head("head", of_all.bytes - of_work.bytes);
  plan.add({Purpose::activations, "x", (whole ? blocks + shape.inputs : shape.inputs + blocks) * x, dtype});
  plan.add({Purpose::activations, "saved", blocks * saved});
  plan.add({Purpose::workspace, "workspace", shape.head ? work + head : work});
  plan.add_nonempty({Purpose::workspace, "pending", shape.pending * waiting});
  plan.add({Purpose::workspace, "grad_x", shape.grads * x, dtype});
  plan.add(step_sums());
}

namespace {

// Adds the buffers of a tensor rank for `lanes` micro-batches, each with `slabs` [n, d] tensors and `blocks`
// blocks.
// NOLINTNEXTLINE(readability-function-size): eight facts
void plan_parts(const RunShape& run, const PartSizes& s, const BufferShape& of, bool kept, std::int64_t lanes,
                const Formula& slabs, const Formula& blocks, MemoryPlan& plan) {
  const Activations mode = run.workload.activations;
  const GatheredRowsOf<Nothing> shared{}, *norms = kept || !s.split() ? nullptr : &shared;
  const BlockList<Counter> list{s, mode, /*part=*/true};
  const Counter of_block{s};
  (void)list.block(of_block, mode != Activations::recompute_gelu, norms);
  const Formula e = s.e, tokens = Formula("B", s.B) * Formula("T", s.T), d("d", s.d), n("n", s.n()),
                a("a", s.att), m("m", s.hidden), chunk("chunk", s.chunk), v("v", s.vocab.size()),
                t("t", s.ranks), part("part", of_block.bytes);
  const auto add = [&](Purpose purpose, const char* name, const Formula& bytes) {
    plan.add({purpose, name, copies(lanes, bytes)});
  };
  add(Purpose::activations, "x", e * slabs * n * d);
  if (mode != Activations::recompute) add(Purpose::activations, "saved", blocks * part);
  if (of.grads > 0) add(Purpose::workspace, "grad_x", e * of.grads * n * d);
  if (mode == Activations::recompute) add(Purpose::workspace, "recomputed", part);
  if (mode == Activations::recompute_gelu) add(Purpose::workspace, "recomputed", e * tokens * m);
  add(Purpose::workspace, "gathered", e * 4 * tokens * d);    // norms, two gradients, a summand
  if (s.split()) add(Purpose::workspace, "rows", e * n * d);  // a sum
  add(Purpose::workspace, "block_grads", e * tokens * (m + 4 * a) + kFp32 * (6 * d + 3 * a + m));
  if (!of.head) return;
  add(Purpose::workspace, "logits", e * chunk * v);
  add(Purpose::workspace, "statistics", kFp32 * (2 * n + 2 * chunk * (1 + t)));
}

}  // namespace

void plan_part_buffers(const RunShape& run, const PartSizes& s, bool kept, std::int64_t lanes,
                       MemoryPlan& plan) {
  const Formula layers("L", run.workload.model.layers);
  plan_parts(run, s, whole_model(run.workload.model, /*grads=*/0), kept, lanes, layers + 1, layers, plan);
}

void plan_part_stage(const RunShape& run, const PartSizes& s, const BufferShape& of, MemoryPlan& plan) {
  const int blocks = of.sets * of.blocks;
  plan_parts(run, s, of, /*kept=*/false, /*lanes=*/1, of.inputs + blocks, blocks, plan);
}

}  // namespace sc
