// Tokens per second of forward and backward at the shape of tests/workloads/four_blocks.json, to compare with
// tests/benchmarks/torch_tiny.py.
//   model_benchmark [steps] [threads]
#include <ATen/Parallel.h>

#include <cstdio>
#include <cstdlib>

#include "tests/benchmarks/timing.h"
#include "tests/model/model_fixture.h"

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 20;
  at::set_num_threads(argc > 2 ? std::atoi(argv[2]) : 1);
  sc::RunShape run = sc::tiny_run();
  sc::Model model(run);
  const sc::BatchConfig& batch = run.workload.batch;
  const std::int64_t micro_batches = batch.global / batch.micro, vocab = run.workload.model.vocab;
  const std::int64_t step_tokens = batch.global * batch.sequence;
  const at::Tensor tokens = sc::some_tokens(batch.micro, batch.sequence, vocab, 1);
  const at::Tensor targets = sc::some_tokens(batch.micro, batch.sequence, vocab, 2);
  const at::Tensor scale = at::full({}, 1.0 / static_cast<double>(step_tokens), at::kFloat);
  const std::vector<double> seconds = sc::benchmark::seconds_of(steps, 5, [&] {
    for (std::int64_t m = 0; m < micro_batches; ++m)
      model.forward_backward(tokens, targets, scale, m == 0 ? sc::Write::overwrite : sc::Write::accumulate);
  });
  const double median = sc::benchmark::quantile(seconds, 0.5);
  std::printf("forward + backward: median %.2f ms/step, spread %.2f..%.2f, %.0f tok/s, loss sum %.6f\n",
              median * 1e3, seconds.front() * 1e3, seconds.back() * 1e3,
              static_cast<double>(step_tokens) / median, model.buffers.result.loss_sum.item<double>());
}
