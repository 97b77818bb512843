// Tests predicted bytes against what is really taken: buffers against the ledger, operations' scratch against
// the allocator.
#include "common/model/activation_plan.h"

#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <gtest/gtest.h>

#include <functional>
#include <tuple>

#include "common/memory/allocator_witness.h"
#include "common/memory/stream_scratch.h"
#include "common/model/activation_buffers.h"
#include "tests/model/model_fixture.h"

namespace sc {
namespace {

struct Shape {
  std::int64_t layers, heads, width, context, vocab, sequence, micro, head_chunk;
};

// Shapes with T on both sides of every edge in attention's kernel (32, 192, 512, 768), heads of odd width,
// chunks that do not divide.
const std::vector<Shape> kShapes = {
    {4, 4, 128, 256, 257, 256, 1, 4096}, {1, 2, 16, 24, 97, 24, 1, 7},     {2, 3, 45, 120, 300, 100, 2, 64},
    {1, 2, 64, 200, 97, 200, 3, 4096},   {1, 2, 128, 600, 97, 600, 1, 50}, {1, 2, 64, 800, 97, 800, 1, 4096},
    {1, 1, 8, 4, 5, 1, 1, 4096},
};

RunShape run_of(const Shape& s) {
  RunShape run;
  run.workload.model = {.layers = s.layers,
                        .heads = s.heads,
                        .width = s.width,
                        .context = s.context,
                        .vocab = s.vocab,
                        .tied = true};
  run.workload.batch = {.sequence = s.sequence, .global = s.micro, .micro = s.micro};
  run.workload.head_chunk = s.head_chunk;
  return run;
}

constexpr Activations kModes[] = {Activations::keep, Activations::recompute_gelu, Activations::recompute};

TEST(ActivationPlan, BuffersAreExact) {
  for (const Shape& shape : kShapes) {
    for (const Activations mode : kModes) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        RunShape run = run_of(shape);
        run.workload.activations = mode;
        run.workload.precision.dtype = dtype;
        const Gpt gpt(run, ParamLayout(run.workload.model, WorldSize{1}));
        Ledger ledger(at::kCPU);
        MemoryPlan plan;
        plan_activation_buffers(run, plan);
        const ActivationBuffers buffers(gpt, ledger);
        EXPECT_TRUE(differences(plan.by_name(), ledger.peaks_by_name()).empty());
      }
    }
  }
}

// A pipeline stage has some of the blocks, several micro-batches, and the head or not.
TEST(ActivationPlan, BuffersOfSomeBlocksAreExact) {
  RunShape run = run_of(kShapes[0]);
  run.workload.model.layers = 5;
  const Gpt gpt(run, ParamLayout(run.workload.model, WorldSize{1}));
  for (const BufferShape& shape : {BufferShape{1, 5, 1, true}, BufferShape{1, 2, 3, false, 4, 2, 2},
                                   BufferShape{4, 2, 1, true, 2, 5}, BufferShape{3, 1, 2, false, 2}}) {
    Ledger ledger(at::kCPU);
    MemoryPlan plan;
    plan_activation_buffers(run, shape, plan);
    ActivationBuffers buffers(gpt, ledger, shape);
    for (const Purpose purpose : {Purpose::activations, Purpose::workspace})
      EXPECT_EQ(ledger.live(purpose), plan.of(purpose)) << name_of(purpose);
    EXPECT_EQ(buffers.last(), shape.first + shape.blocks - 1);
    EXPECT_NE(buffers.x(shape.first - 1).data_ptr(), buffers.x(shape.first).data_ptr());
    if (shape.sets > 1) {
      EXPECT_NE(buffers.x(buffers.last(), 0).data_ptr(),
                buffers.x(buffers.last(), shape.sets - 1).data_ptr());
    }
    EXPECT_EQ(buffers.ws.logits.defined(), shape.head);
  }
}

TEST(ActivationPlan, WorksForTheLargestModelWithoutMemory) {
  RunShape run = run_of({48, 25, 1600, 1024, 50257, 1024, 8, 4096});
  run.workload.precision = {.dtype = DType::bf16, .grad_dtype = DType::bf16, .reduce_dtype = DType::bf16};
  run.device = DeviceKind::cuda;
  // 8192 tokens have 15 slabs of 1600 bf16, four statistics and 25 lse.
  MemoryPlan plan;
  plan_activation_buffers(run, plan);
  const ByName bytes = plan.by_name();
  EXPECT_EQ(bytes.at({Purpose::activations, Place::device, "saved"}).value(),
            48LL * 8192 * (15 * 1600 * 2 + 4 * (4 + 25)));
  EXPECT_EQ(bytes.at({Purpose::workspace, Place::device, "workspace"}).value(),
            8192 * (10 * 1600 * 2 + 8) + 13 * 1600 * 4 + 4096 * 50304 * 2);
}

// cuDNN's workspace at 355M and 16 rows of 1024 is 65 MiB; one smaller than our kernels' own scratch does not
// show.
TEST(ActivationPlan, ScratchOfAStreamIsAttentionsWorkspaceOrTheLeastThereIs) {
  RunShape run = run_of({24, 16, 1024, 1024, 50257, 1024, 16, 4096});
  run.workload.precision.dtype = DType::bf16;
  run.ops = OpsBackend::fused;
  EXPECT_EQ(plan_stream_scratch_bytes(run), Bytes(0)) << "on the CPU";
  run.device = DeviceKind::cuda;
  EXPECT_EQ(plan_stream_scratch_bytes(run), Bytes(65LL << 20));
  run.workload.batch.micro = 4;
  run.workload.batch.sequence = 512;
  EXPECT_EQ(plan_stream_scratch_bytes(run), kStreamScratch);
  run.workload.batch.micro = 64;
  EXPECT_GT(plan_stream_scratch_bytes(run), kStreamScratch);
  run.ops = OpsBackend::aten;
  EXPECT_EQ(plan_stream_scratch_bytes(run), kStreamScratch) << "attention is not cuDNN's";
}

// On a GPU aten's attention is the written-out one; the same code runs here.
TEST(ActivationPlan, WrittenOutAttentionStaysInItsBound) {
  at::set_num_threads(1);
  const auto ops = make_reference_ops();
  for (const Shape& shape : kShapes) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      RunShape run = run_of(shape);
      run.workload.precision.dtype = dtype;
      run.device = DeviceKind::cuda;
      const std::int64_t b = shape.micro, t = shape.sequence, h = shape.heads, d = shape.width / shape.heads;
      const auto options = at::TensorOptions().dtype(to_aten(dtype));
      const at::Tensor qkv = at::ones({b, t, 3, h, d}, options), grad = at::ones({b, t, h, d}, options);
      at::Tensor out = at::ones({b, t, h, d}, options), lse = at::ones({b, h, t});
      QueriesKeysValues grads = unpacked(at::ones_like(qkv));
      const AllocatorWitness witness;
      ops->attention(unpacked(qkv), true, out, lse);
      ops->attention_backward(grad, unpacked(qkv), true, out, lse, grads);
      EXPECT_LE(witness.peak(), plan_op_scratch_bytes(run)) << "T " << t;
      EXPECT_GE(witness.peak() * 2, Bytes(3 * 4 * b * h * t * t)) << "the formula's leading term";
    }
  }
}

// The peak of bytes that one forward and backward takes from LibTorch's allocator besides the ledger.
Bytes measured_scratch(const RunShape& run) {
  Model model(run);
  const at::Tensor tokens =
      some_tokens(run.workload.batch.micro, run.workload.batch.sequence, run.workload.model.vocab, 1);
  const at::Tensor targets =
      some_tokens(run.workload.batch.micro, run.workload.batch.sequence, run.workload.model.vocab, 2);
  const at::Tensor scale = at::full({}, 1.0, at::kFloat);
  model.forward_backward(tokens, targets, scale, Write::overwrite);
  const AllocatorWitness witness;  // counts from here: what lives already is the ledger's
  model.forward_backward(tokens, targets, scale, Write::accumulate);
  EXPECT_EQ(witness.live().value(), 0) << "something was kept";
  return witness.peak();
}

TEST(ActivationPlan, ScratchIsExactOnOneThread) {
  at::set_num_threads(1);
  for (const Shape& shape : kShapes) {
    for (const Activations mode : kModes) {
      RunShape run = run_of(shape);
      run.workload.activations = mode;
      EXPECT_EQ(measured_scratch(run), plan_op_scratch_bytes(run)) << "T " << shape.sequence;
    }
  }
}

// With more threads the plan is only a bound: their buffers need not exist at the same moment, and ATen
// chooses when it widens 16-bit operands.
TEST(ActivationPlan, ScratchIsABoundOnMoreThreads) {
  at::set_num_threads(2);
  for (const Shape& shape : kShapes) {
    if (shape.sequence > 256) continue;
    RunShape run = run_of(shape);
    run.threads = 2;
    EXPECT_LE(measured_scratch(run), plan_op_scratch_bytes(run)) << "T " << shape.sequence;
  }
  at::set_num_threads(1);
}

TEST(ActivationPlan, ScratchIsABoundInSixteenBits) {
  at::set_num_threads(1);
  for (const Shape& shape : kShapes) {
    if (shape.sequence > 100) continue;  // 16-bit products are slow
    for (const DType dtype : {DType::bf16, DType::f16}) {
      for (const DType grad : {dtype, DType::f32}) {
        RunShape run = run_of(shape);
        run.workload.precision = {.dtype = dtype, .grad_dtype = grad, .reduce_dtype = grad};
        EXPECT_LE(measured_scratch(run), plan_op_scratch_bytes(run))
            << name_of(dtype) << " T " << shape.sequence;
      }
    }
  }
}

// Our kernels and cuDNN's attention take no scratch; every ATen operation in their place does.
TEST(OpScratch, IsNothingWhereOurKernelsAndCudnnComputeAll) {
  RunShape run;
  run.device = DeviceKind::cuda;
  run.ops = OpsBackend::fused;
  run.workload.model = {.layers = 2, .heads = 32, .width = 2048, .context = 128};
  run.workload.batch = {.sequence = 128, .global = 2, .micro = 2};
  run.workload.precision = {.dtype = DType::bf16, .grad_dtype = DType::bf16, .reduce_dtype = DType::bf16};
  const std::tuple<const char*, bool, std::function<void(RunShape&)>> all[] = {
      {"as it is", true, [](RunShape&) {}},
      {"deterministic", true, [](RunShape& r) { r.ops = OpsBackend::deterministic; }},
      {"fp16", true, [](RunShape& r) { r.workload.precision.dtype = DType::f16; }},
      {"aten", false, [](RunShape& r) { r.ops = OpsBackend::aten; }},
      {"attention of our own", false, [](RunShape& r) { r.cudnn_attention = false; }},
      {"on the CPU", false, [](RunShape& r) { r.device = DeviceKind::cpu; }},
      {"fp32", false, [](RunShape& r) { r.workload.precision.dtype = DType::f32; }},
      {"256 elements a head", false, [](RunShape& r) { r.workload.model.heads = 8; }},
      {"66 elements a head", false, [](RunShape& r) { r.workload.model.width = 32 * 66; }},
      {"33 heads", false, [](RunShape& r) { r.workload.model.heads = 33, r.workload.model.width = 2112; }}};
  for (const auto& [what, exact, change] : all) {
    RunShape other = run;
    change(other);
    EXPECT_EQ(op_scratch_is_exact(other), exact) << what;
    EXPECT_EQ(plan_op_scratch_bytes(other) == Bytes(0), exact) << what;
  }
}

}  // namespace
}  // namespace sc
