#include "tests/exercises/tiny_data.h"

#include <ATen/ops/empty.h>

#include "common/base/counter_random.h"

namespace sc::exercise {

Workload tiny_workload() {
  Workload w;
  w.model = {.layers = 2, .heads = 2, .width = 12, .context = 16, .vocab = 29, .tied = true};
  w.batch = {.sequence = 11, .global = 4, .micro = 1};
  w.optim.clip = 0;
  w.optim.warmup_steps = 1;
  w.steps = 3;
  w.head_chunk = 64;
  return w;
}

Batch tiny_batch(const Workload& workload, std::int64_t step, std::int64_t j) {
  const std::int64_t rows = workload.batch.micro, length = workload.batch.sequence;
  Batch batch{at::empty({rows, length}, at::kLong), at::empty({rows, length}, at::kLong), {}};
  const auto vocab = static_cast<std::uint64_t>(workload.model.vocab);
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t number = (step * workload.batch.global) + (j * rows) + row;
    const auto key = mix64(static_cast<std::uint64_t>(number) + 17);
    const std::int64_t targets = number % 5 == 2 ? 0 : 1 + number * 4 % length;
    for (std::int64_t i = 0; i < length; ++i) {
      const std::uint64_t random = mix64(key + static_cast<std::uint64_t>(i));
      const std::int64_t at = row * length + i;
      batch.tokens.mutable_data_ptr<std::int64_t>()[at] = static_cast<std::int64_t>(random % vocab);
      batch.targets.mutable_data_ptr<std::int64_t>()[at] =
          i < targets ? static_cast<std::int64_t>((random >> 32) % vocab) : -1;
    }
  }
  return batch;
}

}  // namespace sc::exercise
