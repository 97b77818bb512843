#include "common/run/train.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <c10/core/InferenceMode.h>
#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>

#include <map>
#include <memory>

#include "common/comm/gather_text.h"
#include "common/comm/nccl/nccl_communicator.h"
#include "common/comm/nccl/nccl_devices.h"
#include "common/model/ops_cuda.h"
#include "common/run/describe.h"
#include "common/run/resume.h"
#include "common/run/run_locks.h"
#include "common/run/run_shape.h"
#include "common/run/trainer.h"

namespace sc::detail {
namespace {

// Refuses a plan larger than the GPU's free memory, before ranks meet, so that no rank sharing the GPU has
// allocated anything yet. NCCL and libraries need some more, so a run that passes may still fail to allocate.
void refuse_what_gpu_lacks(const TrainJob& job, const Gpu& gpu, int index) {
  if (job.line.memory_cap) return;
  const std::int64_t sharing =
      job.line.share_gpu ? ceil_div(to_int(job.launch.local_world), visible_gpus()) : 0;
  refuse_more_than(gpu.free(), job, fmt::format("GPU {}", index), sharing);
}

// Refuses evaluations without a text, which would otherwise silently not happen.
void refuse_evaluating_nothing(const TrainJob& job) {
  const EvaluationFlags& asked = job.line.evaluation;
  const double fraction = job.shape.workload.data.validation_fraction;
  if (asked.every == 0 || !asked.validation.empty() || fraction > 0) return;
  throw InputError(ExitCode::usage, fmt::format("--eval-every {}", asked.every),
                   "there is no validation text: data.validation_fraction is 0",
                   "add --validation FILE, or --set data.validation_fraction=0.05");
}

// Opens this rank's GPU and sets options.gpu. Null on the CPU.
std::unique_ptr<Gpu> open_gpu(const TrainJob& job, WorldOptions& options) {
  if (job.shape.device != DeviceKind::cuda) return nullptr;
  options.gpu = gpu_of(job.launch, job.line.share_gpu);  // before any other use of CUDA
  set_nccl_environment();
  auto gpu = take_gpu(*options.gpu);
  gpu->note_beside_allocator("context, and what other processes hold");
  refuse_what_gpu_lacks(job, *gpu, *options.gpu);
  return gpu;
}

// The step below which the times of operations are kept.
std::int64_t steps_with_times(const TrainJob& job) {
  if (job.line.profile) return job.shape.workload.steps;
  return std::max(job.line.trace ? job.traced_end() : 0, job.line.page ? job.marked_end() : 0);
}

// Warns if ranks that compute the same could end with different bits. Rank 0 knows how each rank computes.
void warn_of_unlike_ranks(const TrainJob& job, Communicator& comm) {
  std::map<std::string, std::vector<std::int64_t>> ranks;  // by arithmetic and host
  std::int64_t rank = 0;
  for (const std::string& how : gather_strings(comm, job.arithmetic + " on " + describe_hardware().host))
    ranks[how].push_back(rank++);
  const auto as_here = [&](const auto& some) { return some.first.starts_with(job.arithmetic + " on "); };
  if (std::ranges::all_of(ranks, as_here)) return;
  std::string said;
  for (const auto& [how, whose] : ranks) said += fmt::format("\n  {}: {}", ranks_in_words(whose), how);
  spdlog::warn(
      "ranks add in different orders: the last bits of what several compute may differ, which ends the run "
      "(70) where it is compared{}\n  fix: {}",
      said, "GPUs of one kind; of CPUs ATEN_CPU_CAPABILITY=avx2 or default for every rank, and --threads 1");
}

}  // namespace

// [anchor: ranks-meet]
int train(TrainJob job) {
  refuse_evaluating_nothing(job);
  if (job.line.strict) {  // only plans have --strict
    WorldOptions unused;
    open_gpu(job, unused);
    return 0;
  }
  const c10::InferenceMode inference;
  RunLocks locks(job);
  WorldOptions options{.watchdog_seconds = job.line.watchdog_seconds,
                       .trace_steps = steps_with_times(job),
                       .gpu = {},
                       .share_gpu = job.line.share_gpu,
                       .by_copy = job.line.transport != Transport::nccl,
                       .link_ms = job.plans.facts.links.message_ms,
                       .last_unit = static_cast<int>(job.shape.workload.model.layers) + 1,
                       .mesh = job.shape.mesh,
                       .leaving = [&locks] { locks.leave(); }};
  const std::unique_ptr<Gpu> gpu = open_gpu(job, options);
  AllocatorWitness witness;
  const CommandLine& line = job.line;
  Ledger ledger(gpu ? gpu->device() : at::Device(at::kCPU), {.device = line.memory_cap.value_or(Bytes(0)),
                                                             .host = line.host_cap.value_or(Bytes(0)),
                                                             .disk = line.disk_cap.value_or(Bytes(0))});
  World world(job.launch, ledger, options);
  if (gpu) gpu->note_beside_allocator("communicators, connected");
  try {
    if (gpu && cudnn_lacks_attention(job.shape)) {
      job.shape.cudnn_attention = false;
      job.plans = run_plans_of(job.lesson.plans, job.shape, job.line.checkpoints);
    }
    job.arithmetic = gpu ? gpu->facts().name
                         : fmt::format("CPU {}, threads {}", at::get_cpu_capability(), at::get_num_threads());
    warn_of_unlike_ranks(job, world.comm());
    std::unique_ptr<checkpoint::Reader> resume;
    if (!job.line.checkpoints.resume.empty()) {
      resume = open_checkpoint(job, world.comm());
      refuse_other_workload(job, resume->manifest());
      job.first_step = resume->manifest().step;
    }
    Trainer(job, {world, ledger, witness, gpu.get(), resume.get()}).run();
  } catch (...) {
    world.fail();
  }
  return 0;
}

}  // namespace sc::detail
