#include "common/config/other_names.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "common/base/parse_number.h"

namespace sc {
namespace {

struct Name {
  std::string_view theirs, ours;
};
constexpr const char* kStage =
    "a stage is a lesson: lessons/02_zero1 (1), lessons/03_zero2 (2), lessons/04_zero3 (3)";
constexpr const char* kGlobal =
    "--set batch.global=N: rows of one step over all ranks, the same for every number of ranks";
constexpr const char* kMicro = "--set batch.micro=N: rows of one forward and backward of a rank";
constexpr const char* kSteps = "--steps N; the first lines of a run say how many steps an epoch has";
constexpr const char* kOffload =
    "lessons/05_offload keeps optimizer states in host memory, lessons/06_infinity on a disk";
constexpr const char* kWeights =
    "--init FILE for the weights, --workload FILE for their shape: docs/real_models.md";
constexpr const char* kTensor =
    "lessons/10_tensor_parallel/run.sh -n RANKS; with stages and data ranks lessons/11_combined, "
    "mesh=stages x data x tensor";
constexpr const char* kHosts = "mpirun or Slurm finds the hosts, and no address is needed: docs/cluster.md";
constexpr const char* kDeepSpeed =
    "a strategy is a lesson; docs/coverage.md has DeepSpeed's keys, one by one";
// Flags and keys of other programs, all written with dashes, and what to use here instead.
constexpr auto kNames = std::to_array<Name>({
    {"lr", "--set optim.lr=0.001"},
    {"learning-rate", "--set optim.lr=0.001"},
    {"weight-decay", "--set optim.weight_decay=0.01"},
    {"warmup-steps", "--set optim.warmup_steps=N"},
    {"warmup-iters", "--set optim.warmup_steps=N"},
    {"lr-scheduler-type", "--set optim.schedule=cosine"},
    {"grad-clip", "--set optim.clip=1.0"},
    {"max-grad-norm", "--set optim.clip=1.0"},
    {"gradient-clipping", "--set optim.clip=1.0"},
    {"optimizer", "AdamW, and no other: optim.lr, optim.beta1, optim.beta2, optim.eps, optim.weight_decay"},
    {"scheduler", "--set optim.schedule=cosine, linear or constant; optim.warmup_steps"},
    {"batch-size", kGlobal},
    {"global-batch-size", kGlobal},
    {"train-batch-size", kGlobal},
    {"micro-batch-size", kMicro},
    {"per-device-train-batch-size", kMicro},
    {"train-micro-batch-size-per-gpu", kMicro},
    {"gradient-accumulation-steps", "it follows: batch.global / (batch.micro x data-parallel ranks)"},
    {"block-size", "--set batch.sequence=N"},
    {"seq-length", "--set batch.sequence=N"},
    {"seq-len", "--set batch.sequence=N"},
    {"max-seq-length", "--set batch.sequence=N"},
    {"max-length", "--set batch.sequence=N, at most model.context"},
    {"num-samples", "--steps N: a step takes batch.global rows of the text, each once an epoch"},
    {"bf16", "--set precision.dtype=bf16"},
    {"fp16", "--set precision.dtype=fp16"},
    {"dtype", "--set precision.dtype=bf16"},
    {"epochs", kSteps},
    {"num-epochs", kSteps},
    {"num-train-epochs", kSteps},
    {"max-steps", "--steps N"},
    {"max-iters", "--steps N"},
    {"train-iters", "--steps N"},
    {"zero-stage", kStage},
    {"stage", kStage},
    {"zero-optimization.stage", kStage},
    {"sharding-strategy",
     "FULL_SHARD: lessons/04_zero3; SHARD_GRAD_OP: its reshard_after_forward=off; HYBRID_SHARD: its "
     "shard_ranks=N; NO_SHARD: lessons/01_data_parallel"},
    {"ddp", "a strategy is a lesson: lessons/01_data_parallel"},
    {"zero1", "a strategy is a lesson: lessons/02_zero1"},
    {"zero2", "a strategy is a lesson: lessons/03_zero2"},
    {"zero3", "a strategy is a lesson: lessons/04_zero3"},
    {"offload", kOffload},
    {"cpu-offload", kOffload},
    {"zero-optimization.offload-optimizer", kOffload},
    {"gradient-checkpointing", "--set activations=recompute"},
    {"eval-interval", "--eval-every STEPS"},
    {"eval-steps", "--eval-every STEPS"},
    {"eval-iters", "--set data.validation_rows=N, in rows"},
    {"output-dir", "--out DIR for the record, --checkpoints DIR for checkpoints"},
    {"out-dir", "--out DIR for the record, --checkpoints DIR for checkpoints"},
    {"save-steps", "--save-every STEPS"},
    {"save-interval", "--save-every STEPS"},
    {"save-total-limit", "--keep N"},
    {"resume-from-checkpoint", "--resume DIR, or --resume latest"},
    {"load", "--resume DIR, or --init FILE for weights alone"},
    {"model", kWeights},
    {"model-name", kWeights},
    {"model-name-or-path", kWeights},
    {"init-from", kWeights},
    {"dataset", "--data FILE"},
    {"train-file", "--data FILE"},
    {"validation-file", "--validation FILE"},
    {"test-file", "--test FILE"},
    {"nproc-per-node", "run.sh -n RANKS"},
    {"num-gpus", "run.sh -n RANKS"},
    {"gpus", "run.sh -n RANKS"},
    {"nnodes", kHosts},
    {"node-rank", kHosts},
    {"master-addr", kHosts},
    {"master-port", kHosts},
    {"tensor-model-parallel-size", kTensor},
    {"context-parallel-size",
     "lessons/12_context_parallel/run.sh -n RANKS; with other axes lessons/11_combined, mesh=stages x data x "
     "context x tensor"},
    {"pipeline-model-parallel-size", "lessons/07_pipeline/run.sh -n STAGES"},
    {"deepspeed", kDeepSpeed},
    {"deepspeed-config", kDeepSpeed},
    {"fsdp", "a strategy is a lesson: lessons/04_zero3 is FSDP's full sharding"},
    {"compile", "nothing is compiled at run time; a GPU's step is a CUDA graph (--graph)"},
});

constexpr auto kOtherLessons = std::to_array<Name>({
    {"overlap",
     "in lesson 04 --set prefetch=0 gathers no unit ahead; lessons 01, 02, 03 and 05 have overlap=off"},
});

// Keys of older versions of Stagecraft, and what to use instead.
constexpr auto kOlder = std::to_array<Name>({
    {"data.validation_batches",
     "data.validation_rows: the old number times batch.micro, so that batch.micro no longer changes the "
     "rows"},
    {"clip_norm", "leave it out: a norm that an update does not wait for is the only one that clips it"},
});

// The number that `text` spells, or 0 if that is no whole number from 1 to `most`.
std::int64_t count_of(std::string_view text, std::int64_t most) {
  const std::int64_t count = parse_number<std::int64_t>(text).value_or(0);
  return count > 0 && count <= most ? count : 0;
}

std::string ours_among(std::span<const Name> names, std::string_view theirs) {
  const auto found = std::ranges::find(names, theirs, &Name::theirs);
  return found == names.end() ? "" : std::string(found->ours);
}

}  // namespace

std::string newer_for(std::string_view key) { return ours_among(kOlder, key); }

std::map<std::string, std::string> in_todays_keys(std::map<std::string, std::string> workload) {
  const auto batches = workload.find("data.validation_batches"), micro = workload.find("batch.micro");
  if (batches == workload.end() || micro == workload.end()) return workload;
  constexpr std::int64_t kMost = 1 << 24;  // limit for each factor, so that the product fits
  const std::int64_t b = count_of(batches->second, kMost), m = count_of(micro->second, kMost);
  if (workload.emplace("data.validation_rows", b * m > 0 ? std::to_string(b * m) : batches->second).second)
    // A file with the old key and the new one is not ours, and is refused later.
    workload.erase("data.validation_batches");
  return workload;
}

std::string instead_of(std::string_view key) { return ours_among(kOtherLessons, key); }

std::string ours_for(std::string_view name) {
  std::string dashed(name.substr(std::min(name.find_first_not_of('-'), name.size())));
  std::ranges::replace(dashed, '_', '-');
  const std::string ours = ours_among(kNames, dashed);
  return ours.empty() && dashed.starts_with("zero-optimization.") ? kDeepSpeed : ours;
}

}  // namespace sc
