// How long pipedream takes to simulate a million actions (limit 1 s), and to check 64 stages x 1024
// microbatches (limit 5 s) and generate them. Prints medians of five; asserts nothing.
#include <cstdio>
#include <vector>

#include "pipedream/check.h"
#include "pipedream/generate.h"
#include "pipedream/simulate.h"
#include "tests/benchmarks/timing.h"

namespace sc::pipedream {
namespace {

template <class Body>
double median_seconds(const Body& body) {
  return benchmark::quantile(benchmark::seconds_of(5, 0, body), 0.5);
}

std::size_t actions_of(const Schedule& schedule) {
  std::size_t sum = 0;
  for (const std::vector<Action>& list : schedule.actions) sum += list.size();
  return sum;
}

void run() {
  const GenerateOptions large{.family = Family::one_f_one_b, .stages = 64, .microbatches = 1024};
  const GenerateOptions million{
      .family = Family::interleaved, .stages = 64, .microbatches = 1280, .chunks = 2};
  const Schedule checked = generate(large);
  const Schedule simulated = generate(million);
  std::printf("%-52s %9zu actions %7.3f s\n", "generate 1f1b, 64 stages x 1024 microbatches",
              actions_of(checked), median_seconds([&] { generate(large); }));
  std::printf("%-52s %9zu actions %7.3f s (limit 5)\n", "check it", actions_of(checked),
              median_seconds([&] { check(checked); }));
  std::printf("%-52s %9zu actions %7.3f s (limit 1)\n", "simulate interleaved, 64 x 1280, 2 chunks",
              actions_of(simulated), median_seconds([&] { simulate(simulated, {}); }));
}

}  // namespace
}  // namespace sc::pipedream

int main() { sc::pipedream::run(); }
