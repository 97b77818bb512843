#include "common/gpu/gpu_check.h"

#include <spdlog/fmt/fmt.h>

#include "common/base/text.h"
#include "common/comm/nccl/nccl_devices.h"
#include "common/model/activation_plan.h"
#include "common/model/ops_cuda.h"

namespace sc {
namespace {

constexpr int kHopper = 9;

constexpr const char* kOperationsOf[] = {"ATen's", "fused", "fused, deterministic"};  // indexed by OpsBackend

}  // namespace

std::map<std::string, std::string> gpu_versions(const Gpu& gpu) {
  const GpuFacts f = gpu.facts();
  return {{"GPU", f.name},    {"CUDA", f.cuda},     {"driver", f.driver},
          {"cuDNN", f.cudnn}, {"cuBLAS", f.cublas}, {"NCCL", describe_nccl()}};
}

std::string why_not_cudnn_attention(const RunShape& shape) {
  const std::int64_t head = shape.workload.model.head_dim();
  const std::int64_t sequence = shape.workload.batch.sequence;
  const DType dtype = shape.workload.precision.dtype;
  if (attention_uses_cudnn(to_aten(dtype), sequence, head))
    return shape.cudnn_attention ? "" : "cuDNN has no kernel of this shape for this GPU";
  if (dtype != DType::bf16 && dtype != DType::f16) {
    return fmt::format("its kernel takes 16-bit numbers, and precision.dtype is {}", name_of(dtype));
  }
  if (head % 8 != 0) return fmt::format("a head of {} elements is no multiple of 8", head);
  if (head > 128) return fmt::format("a head of {} elements is longer than 128", head);
  return fmt::format("batch.sequence is {}", sequence);
}

std::string warn_of_attention(const GpuFacts& gpu, const RunShape& shape) {
  const std::string reason = why_not_cudnn_attention(shape);
  if (reason.empty() || (gpu.capability.major != kHopper && shape.cudnn_attention)) return "";
  return fmt::format("  warning  attention is not cuDNN's{}, but written out in ATen: {}\n",
                     shape.cudnn_attention ? ", whose kernel is made for this GPU" : "", reason);
}

std::string describe_gpu(const GpuFacts& f, const RunShape& shape, bool graph) {
  const bool cudnn = why_not_cudnn_attention(shape).empty();
  return fmt::format("{}, {}, CUDA {} (driver {}), cuBLAS {}, {}; {} operations, attention by {}{}", f.name,
                     human_bytes(f.memory), f.cuda, f.driver, f.cublas, describe_nccl(),
                     kOperationsOf[static_cast<int>(shape.ops)],
                     cudnn ? "cuDNN " + f.cudnn : "ATen, written out", graph ? ", one graph a step" : "");
}

AllocatorCheck check_allocator(Gpu& gpu, const RunShape& shape, std::int64_t threads, const Ledger& ledger,
                               std::int64_t allocations_before) {
  AllocatorCheck check;
  if (op_scratch_is_exact(shape)) check.allocations = gpu.allocations() - allocations_before;
  check.parts = gpu.constants(threads);
  // cuDNN's deterministic backward has no formula for its workspace; nor was any GPU but Hopper measured.
  const bool formula = shape.ops != OpsBackend::deterministic && gpu.facts().capability.major == kHopper;
  const Bytes scratch = formula ? plan_stream_scratch_bytes(shape) : gpu.scratch();
  check.parts.insert(check.parts.begin(),
                     {{"ledger", ledger.peak_total()}, {"scratch of our kernels", scratch}});
  check.parts.push_back({"an operation's own", plan_op_scratch_bytes(shape)});
  check.at_most = !op_scratch_is_exact(shape);
  check.windows = ledger.adopted();
  check.peak = gpu.peak() + check.windows;
  if (shape.comm == CommBackend::staged) return check;  // other ranks on this GPU would be counted too
  gpu.note_beside_allocator("tables of windows, cuDNN's plans, code of kernels", check.windows);
  check.beside = gpu.beside_allocator();
  return check;
}

}  // namespace sc
