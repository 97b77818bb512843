#include "common/run/gpu_check.h"

#include <spdlog/fmt/fmt.h>

#include "common/base/text.h"
#include "common/comm/nccl_devices.h"
#include "common/memory/ledger.h"
#include "common/model/activation_plan.h"
#include "common/model/ops_cuda.h"

namespace sc {

std::map<std::string, std::string> gpu_versions(const Gpu& gpu) {
  const GpuFacts f = gpu.facts();
  return {{"GPU", f.name},    {"CUDA", f.cuda},     {"driver", f.driver},
          {"cuDNN", f.cudnn}, {"cuBLAS", f.cublas}, {"NCCL", describe_nccl()}};
}

std::string describe_gpu(const Gpu& gpu, const RunShape& shape, bool graph) {
  const GpuFacts f = gpu.facts();
  const bool cudnn = attention_uses_cudnn(to_aten(shape.workload.precision.dtype),
                                          shape.workload.batch.sequence, shape.workload.model.head_dim());
  return fmt::format("{}, {}, CUDA {} (driver {}), cuDNN {}, cuBLAS {}, {}; {} operations, attention by {}{}",
                     f.name, human_bytes(f.memory), f.cuda, f.driver, f.cudnn, f.cublas, describe_nccl(),
                     shape.ops == OpsBackend::fused ? "fused" : "ATen's",
                     cudnn ? "cuDNN" : "ATen, written out", graph ? ", one graph a step" : "");
}

AllocatorCheck check_allocator(const Gpu& gpu, const RunShape& shape, Bytes ledger_peak) {
  AllocatorCheck check;
  check.parts = gpu.constants();
  check.parts.insert(check.parts.begin(), {"ledger", ledger_peak});
  check.parts.push_back({"an operation's own", plan_op_scratch_bytes(shape)});
  check.at_most = !op_scratch_is_exact(shape);
  check.peak = gpu.peak();
  return check;
}

}  // namespace sc
