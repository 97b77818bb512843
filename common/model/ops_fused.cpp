// Own GPU kernels where ATen needs several passes over memory: norms, GELU's backward, sums over columns, the
// residual in a product, cross entropy, embedding. Attention is cuDNN's without copies; other products are
// ATen's.
//   The kernels are made for the 16-bit path; fp32 works too. A step allocates nothing, except where ATen
//   computes: attention in fp32 or of shapes that cuDNN does not take, rows of more than kWidestFusedRow
//   elements. Scratch: common/memory/stream_scratch.h. Bits are equal from run to run, for attention's
//   backward only with `deterministic`: otherwise it adds up dq as blocks finish, which is faster. Operands
//   whose rows are not multiples of 8 elements at 16-byte addresses go to ATen; GPT's shapes never are, by
//   ParamLayout's alignment.
#include <c10/cuda/CUDAStream.h>

#include <initializer_list>
#include <memory>

#include "common/base/check.h"
#include "common/base/op_profile.h"
#include "common/memory/ledger.h"
#include "common/memory/stream_scratch.h"
#include "common/model/activation_plan.h"
#include "common/model/fused/attention.h"
#include "common/model/fused/kernels.h"
#include "common/model/fused/lt_matmul.h"
#include "common/model/ops_cudnn.h"

namespace sc {
namespace {

static_assert(fused::kMaxWidth == kWidestFusedRow);

// From this number of rows on, GELU in the product's epilogue pays (on an H200 it does not at 2048).
constexpr std::int64_t kRowsForGeluEpilogue = 4096;

cudaStream_t stream() { return c10::cuda::getCurrentCUDAStream().stream(); }

// Whether the kernels can read the tensors: contiguous, in pieces of eight elements, at 16-byte addresses.
// Undefined ones pass.
bool in_pieces(std::int64_t width, std::initializer_list<const at::Tensor*> tensors) {
  if (width % 8 != 0) return false;
  for (const at::Tensor* t : tensors) {
    if (!t->defined()) continue;
    if (!t->is_contiguous() || reinterpret_cast<std::uintptr_t>(t->const_data_ptr()) % 16 != 0) return false;
  }
  return true;
}

const void* read(const at::Tensor& t) { return t.defined() ? t.const_data_ptr() : nullptr; }
const float* floats(const at::Tensor& t) { return t.const_data_ptr<float>(); }
float* sums_of(const at::Tensor& t) { return t.defined() ? t.mutable_data_ptr<float>() : nullptr; }

fused::Steps steps_of(const at::Tensor& t) { return {t.stride(0), t.stride(1)}; }

// grads: where they go; of a forward pass, as what they are gradients of.
fused::AttentionShape shape_of(const QueriesKeysValues& in, bool causal, const at::Tensor& out,
                               const QueriesKeysValues& grads) {
  return {.dtype = from_aten(in.q.scalar_type()),
          .batch = in.q.size(0),
          .queries = in.q.size(1),
          .keys = in.k.size(1),
          .heads = in.q.size(2),
          .head = in.q.size(3),
          .q = steps_of(in.q),
          .kv = steps_of(in.k),
          .out = steps_of(out),
          .grad_q = steps_of(grads.q),
          .grad_kv = steps_of(grads.k),
          .causal = causal};
}

class FusedOps final : public CudnnOps {
 public:
  FusedOps(bool deterministic, bool cudnn) : CudnnOps(cudnn), attention_(deterministic) {}

  void embed(const at::Tensor& tokens, const at::Tensor& wte, const at::Tensor& wpe,
             at::Tensor& x) const override {
    if (!in_pieces(x.size(2), {&wte, &wpe, &x})) return AtenOps::embed(tokens, wte, wpe, x);
    fused::embed({from_aten(x.scalar_type()), x.size(0) * x.size(1), x.size(2), 0, wte.size(0),
                  tokens.const_data_ptr<std::int64_t>(), wte.const_data_ptr(), wpe.const_data_ptr(),
                  x.mutable_data_ptr(), x.size(1)},
                 stream());
  }

  void embed_part(const at::Tensor& tokens, const at::Tensor& wte, Range rows, at::Tensor& x) const override {
    if (!in_pieces(x.size(1), {&wte, &x})) return AtenOps::embed_part(tokens, wte, rows, x);
    fused::embed({from_aten(x.scalar_type()), x.size(0), x.size(1), rows.begin, rows.size(),
                  tokens.const_data_ptr<std::int64_t>(), wte.const_data_ptr(), nullptr, x.mutable_data_ptr()},
                 stream());
  }

  void embed_part_backward(const at::Tensor& tokens, const at::Tensor& grad_x, Range rows,
                           at::Tensor& grad_wte, Write write) const override {
    if (!in_pieces(grad_x.size(1), {&grad_x, &grad_wte}))
      return AtenOps::embed_part_backward(tokens, grad_x, rows, grad_wte, write);
    const fused::EmbedBackward op{.dtype = from_aten(grad_x.scalar_type()),
                                  .grad_dtype = from_aten(grad_wte.scalar_type()),
                                  .rows = grad_x.size(0),
                                  .width = grad_x.size(1),
                                  .first = rows.begin,
                                  .vocab = rows.size(),
                                  .tokens = tokens.const_data_ptr<std::int64_t>(),
                                  .grad_x = grad_x.const_data_ptr(),
                                  .grad_wte = grad_wte.mutable_data_ptr(),
                                  .accumulate = write == Write::accumulate};
    fused::embed_backward(op, stream_scratch(fused::embed_backward_scratch_bytes(op.rows, op.vocab)),
                          stream());
  }

  void positions_backward(const at::Tensor& grad_x, Range run, std::int64_t length, at::Tensor& grad_wpe,
                          Write write) const override {
    if (!in_pieces(grad_x.size(1), {&grad_x, &grad_wpe}))
      return AtenOps::positions_backward(grad_x, run, length, grad_wpe, write);
    fused::positions_backward({.dtype = from_aten(grad_x.scalar_type()),
                               .grad_dtype = from_aten(grad_wpe.scalar_type()),
                               .rows = grad_x.size(0),
                               .width = grad_x.size(1),
                               .first = run.begin,
                               .length = length,
                               .context = grad_wpe.size(0),
                               .grad_x = grad_x.const_data_ptr(),
                               .grad_wpe = grad_wpe.mutable_data_ptr(),
                               .accumulate = write == Write::accumulate},
                              stream());
  }

  // Row-major y [N, out] = x [N, in] w^T is column-major y [out, N] = w^T x with w [in, out], x [in, N].
  void linear_residual(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias,
                       const at::Tensor& residual, at::Tensor& y) const override {
    if (!in_pieces(w.size(0), {&x, &w, &bias, &residual, &y}) || w.size(1) % 8 != 0) {
      return AtenOps::linear_residual(x, w, bias, residual, y);
    }
    const DType dtype = from_aten(x.scalar_type());
    products_.run({dtype, dtype, true, false, w.size(0), x.size(0), w.size(1), true, fused::Epilogue::bias},
                  {.a = w.const_data_ptr(),
                   .b = x.const_data_ptr(),
                   .c = residual.const_data_ptr(),
                   .d = y.mutable_data_ptr(),
                   .bias = bias.const_data_ptr()},
                  stream_scratch(fused::LtMatmul::kWorkspaceBytes), stream());
  }

  // GELU runs in the product's epilogue for many rows; for few a kernel of its own is faster.
  void linear_gelu(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias, at::Tensor& pre,
                   at::Tensor& y) const override {
    const bool epilogue =
        x.size(0) >= kRowsForGeluEpilogue && x.scalar_type() != at::kFloat && w.size(1) % 8 == 0;
    if (!epilogue || !in_pieces(w.size(0), {&x, &w, &bias, &pre, &y})) {
      linear(x, w, bias, pre);
      return gelu(pre, y);
    }
    const DType dtype = from_aten(x.scalar_type());
    products_.run(
        {dtype, dtype, true, false, w.size(0), x.size(0), w.size(1), false, fused::Epilogue::gelu_bias},
        {.a = w.const_data_ptr(),
         .b = x.const_data_ptr(),
         .c = nullptr,
         .d = y.mutable_data_ptr(),
         .bias = bias.const_data_ptr(),
         .before_gelu = pre.mutable_data_ptr()},
        stream_scratch(fused::LtMatmul::kWorkspaceBytes), stream());
  }

  // Uses cublasLt if grad_w is fp32 with 16-bit operands, otherwise ATen. Row-major grad_w [out, in] =
  // grad_y^T x is column-major grad_w [in, out] = x grad_y^T with x [in, N], grad_y [out, N].
  void matmul_backward_weight(const at::Tensor& grad_y, const at::Tensor& x, at::Tensor& grad_w,
                              Write write) const override {
    const bool ours = grad_w.scalar_type() != x.scalar_type() && grad_w.size(0) % 8 == 0 &&
                      in_pieces(grad_w.size(1), {&grad_y, &x, &grad_w});
    if (!ours) return AtenOps::matmul_backward_weight(grad_y, x, grad_w, write);
    products_.run({from_aten(x.scalar_type()), from_aten(grad_w.scalar_type()), false, true, x.size(1),
                   grad_y.size(1), x.size(0), write == Write::accumulate, fused::Epilogue::none},
                  {.a = x.const_data_ptr(),
                   .b = grad_y.const_data_ptr(),
                   .c = grad_w.const_data_ptr(),
                   .d = grad_w.mutable_data_ptr()},
                  stream_scratch(fused::LtMatmul::kWorkspaceBytes), stream());
  }

  void column_sums(const at::Tensor& m, at::Tensor& sums) const override {
    if (!in_pieces(m.size(1), {&m})) return AtenOps::column_sums(m, sums);
    fused::column_sums({from_aten(m.scalar_type()), m.size(0), m.size(1), m.const_data_ptr(), sums_of(sums)},
                       stream_scratch(fused::column_scratch_bytes(m.size(1))), stream());
  }

  void store_sums(std::span<const StoredSums> vectors, Write write) const override {
    fused::StoreSums op{.dtype = from_aten(vectors[0].grad.scalar_type()),
                        .accumulate = write == Write::accumulate};
    for (const StoredSums& v : vectors) {
      op.part[op.count++] = {floats(v.sums), v.grad.mutable_data_ptr(), v.grad.numel()};
      if (op.count < fused::StoreSums::kMost) continue;
      fused::store_sums(op, stream());
      op.count = 0;
    }
    if (op.count > 0) fused::store_sums(op, stream());
  }

  void gelu(const at::Tensor& pre, at::Tensor& y) const override {
    if (!in_pieces(pre.numel(), {&pre, &y})) return AtenOps::gelu(pre, y);
    fused::gelu(from_aten(pre.scalar_type()), pre.numel(), pre.const_data_ptr(), y.mutable_data_ptr(),
                stream());
  }

  void gelu_backward(at::Tensor& grad, const at::Tensor& pre, at::Tensor& sums) const override {
    if (!in_pieces(grad.size(1), {&grad, &pre})) return AtenOps::gelu_backward(grad, pre, sums);
    fused::gelu_backward({from_aten(grad.scalar_type()), grad.size(0), grad.size(1), grad.mutable_data_ptr(),
                          pre.const_data_ptr(), sums_of(sums)},
                         stream_scratch(fused::column_scratch_bytes(grad.size(1))), stream());
  }

  void layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, at::Tensor& y,
                  at::Tensor& mean, at::Tensor& rstd) const override {
    if (!in_pieces(x.size(1), {&x, &weight, &bias, &y}) || x.size(1) > fused::kMaxWidth) {
      return AtenOps::layer_norm(x, weight, bias, y, mean, rstd);
    }
    fused::layer_norm(
        {from_aten(x.scalar_type()), x.size(0), x.size(1), x.const_data_ptr(), weight.const_data_ptr(),
         bias.const_data_ptr(), y.mutable_data_ptr(), sums_of(mean), sums_of(rstd)},
        stream());
  }

  void add_norm(const AddNorm& op) const override {
    const std::int64_t width = op.x.size(1);
    const bool norm = op.weight.defined();
    if (!in_pieces(width, {&op.in, &op.bias, &op.sum, &op.x}) || width > fused::kMaxWidth ||
        (norm && !in_pieces(width, {&op.weight, &op.norm_bias, &op.y})))
      return AtenOps::add_norm(op);
    fused::AddNorm kernel{{from_aten(op.x.scalar_type()), op.x.size(0), width, op.in.const_data_ptr()},
                          op.bias.const_data_ptr(),
                          op.sum.const_data_ptr(),
                          op.x.mutable_data_ptr()};
    if (norm) {
      at::Tensor mean = op.mean, rstd = op.rstd;
      kernel.norm.weight = op.weight.const_data_ptr(), kernel.norm.bias = op.norm_bias.const_data_ptr();
      kernel.norm.y = op.y.mutable_data_ptr();
      kernel.norm.mean = sums_of(mean), kernel.norm.rstd = sums_of(rstd);
    }
    fused::add_norm(kernel, stream());
  }

  void layer_norm_backward(const at::Tensor& grad_y, const at::Tensor& x, const at::Tensor& mean,
                           const at::Tensor& rstd, const at::Tensor& weight, const at::Tensor& residual,
                           at::Tensor& grad_x, LayerNormSums& sums) const override {
    const std::int64_t width = x.size(1);
    if (!in_pieces(width, {&grad_y, &x, &weight, &residual, &grad_x}) || width > fused::kMaxWidth) {
      return AtenOps::layer_norm_backward(grad_y, x, mean, rstd, weight, residual, grad_x, sums);
    }
    const fused::LayerNormBackward op{.dtype = from_aten(x.scalar_type()),
                                      .rows = x.size(0),
                                      .width = width,
                                      .grad_y = grad_y.const_data_ptr(),
                                      .x = x.const_data_ptr(),
                                      .mean = floats(mean),
                                      .rstd = floats(rstd),
                                      .weight = weight.const_data_ptr(),
                                      .residual = read(residual),
                                      .grad_x = grad_x.mutable_data_ptr(),
                                      .of_weight = sums_of(sums.weight),
                                      .of_bias = sums_of(sums.bias),
                                      .of_residual = sums_of(sums.residual),
                                      .of_grad_x = sums_of(sums.grad_x)};
    fused::layer_norm_backward(op, stream_scratch(fused::layer_norm_backward_scratch_bytes(width)), stream());
  }

  // cuDNN on the operands where they lie: no fresh tensors, no copies.
  void attention(const QueriesKeysValues& in, bool causal, at::Tensor& out, at::Tensor& lse) const override {
    if (!uses_cudnn(in)) return AtenOps::attention(in, causal, out, lse);
    const fused::AttentionShape shape = shape_of(in, causal, out, in);
    attention_.forward(
        shape, {.q = in.q.const_data_ptr(), .k = in.k.const_data_ptr(), .v = in.v.const_data_ptr()},
        out.mutable_data_ptr(), sums_of(lse), stream_scratch(attention_.workspace_bytes(shape)), stream());
  }

  void attention_backward(const at::Tensor& grad_out, const QueriesKeysValues& in, bool causal,
                          const at::Tensor& out, const at::Tensor& lse,
                          QueriesKeysValues& grads) const override {
    if (!uses_cudnn(in)) return AtenOps::attention_backward(grad_out, in, causal, out, lse, grads);
    const fused::AttentionShape shape = shape_of(in, causal, out, grads);
    attention_.backward(
        shape,
        {.in = {.q = in.q.const_data_ptr(), .k = in.k.const_data_ptr(), .v = in.v.const_data_ptr()},
         .grad_out = grad_out.const_data_ptr(),
         .out = out.const_data_ptr(),
         .lse = floats(lse),
         .grad_q = grads.q.mutable_data_ptr(),
         .grad_k = grads.k.mutable_data_ptr(),
         .grad_v = grads.v.mutable_data_ptr()},
        stream_scratch(attention_.workspace_bytes(shape)), stream());
  }

  void merge_attention(const at::Tensor& out, const at::Tensor& lse, const at::Tensor& others,
                       at::Tensor& sum, at::Tensor& lse_of_sum) const override {
    fused::merge_attention({.dtype = from_aten(out.scalar_type()),
                            .others_dtype = from_aten(others.scalar_type()),
                            .sum_dtype = from_aten(sum.scalar_type()),
                            .batch = out.size(0),
                            .tokens = out.size(1),
                            .heads = out.size(2),
                            .head = out.size(3),
                            .row = lse_of_sum.stride(1),
                            .out = out.const_data_ptr(),
                            .lse = floats(lse),
                            .others = others.const_data_ptr(),
                            .sum = sum.mutable_data_ptr(),
                            .lse_of_sum = sums_of(lse_of_sum)},
                           stream());
  }

  void cross_entropy(at::Tensor& logits, const at::Tensor& targets, std::int64_t vocab,
                     const at::Tensor& scale, at::Tensor& loss_sum, at::Tensor& tokens) const override {
    if (!in_pieces(logits.size(1), {&logits})) {
      return AtenOps::cross_entropy(logits, targets, vocab, scale, loss_sum, tokens);
    }
    const fused::CrossEntropy op{.dtype = from_aten(logits.scalar_type()),
                                 .rows = logits.size(0),
                                 .vocab = vocab,
                                 .padded = logits.size(1),
                                 .logits = logits.mutable_data_ptr(),
                                 .targets = targets.const_data_ptr<std::int64_t>(),
                                 .scale = scale.defined() ? floats(scale) : nullptr,
                                 .loss_sum = loss_sum.mutable_data_ptr<double>(),
                                 .tokens = tokens.mutable_data_ptr<double>()};
    fused::cross_entropy(op, stream_scratch(fused::cross_entropy_scratch_bytes()), stream_counters(),
                         stream());
  }

  void softmax_part(const at::Tensor& logits, std::int64_t columns, at::Tensor& statistics) const override {
    if (!in_pieces(logits.size(1), {&logits})) return AtenOps::softmax_part(logits, columns, statistics);
    fused::softmax_part({from_aten(logits.scalar_type()), logits.size(0), columns, logits.size(1),
                         logits.const_data_ptr(), statistics.mutable_data_ptr<float>()},
                        stream());
  }

  void softmax_gradient(at::Tensor& logits, const at::Tensor& targets, Range columns,
                        const at::Tensor& statistics, const at::Tensor& scale, at::Tensor& loss_sum,
                        at::Tensor& tokens) const override {
    if (!in_pieces(logits.size(1), {&logits}))
      return AtenOps::softmax_gradient(logits, targets, columns, statistics, scale, loss_sum, tokens);
    const fused::SoftmaxGradient op{.dtype = from_aten(logits.scalar_type()),
                                    .rows = logits.size(0),
                                    .first = columns.begin,
                                    .columns = columns.size(),
                                    .padded = logits.size(1),
                                    .ranks = statistics.size(0),
                                    .logits = logits.mutable_data_ptr(),
                                    .targets = targets.const_data_ptr<std::int64_t>(),
                                    .statistics = floats(statistics),
                                    .scale = scale.defined() ? floats(scale) : nullptr,
                                    .loss_sum = loss_sum.mutable_data_ptr<double>(),
                                    .tokens = tokens.mutable_data_ptr<double>()};
    fused::softmax_gradient(op, stream_scratch(fused::cross_entropy_scratch_bytes()), stream_counters(),
                            stream());
  }

 private:
  mutable fused::Attention attention_;
  mutable fused::LtMatmul products_;
};

}  // namespace

std::unique_ptr<const Ops> make_cuda_ops(OpsBackend backend, bool cudnn_attention) {
  if (backend == OpsBackend::aten) return std::make_unique<CudnnOps>(cudnn_attention);
  return std::make_unique<FusedOps>(backend == OpsBackend::deterministic, cudnn_attention);
}

bool cudnn_lacks_attention(const RunShape& run) {
  const GptConfig& model = run.workload.model;
  const BatchConfig& batch = run.workload.batch;
  const DType dtype = run.workload.precision.dtype;
  if (!attention_uses_cudnn(to_aten(dtype), batch.sequence, model.head_dim())) return false;
  return !fused::Attention(run.ops == OpsBackend::deterministic)
              .has(fused::AttentionShape::packed(dtype, batch.micro, batch.sequence, model.heads,
                                                 model.head_dim()));
}

}  // namespace sc
