#include "common/config/batch_plan.h"

#include <spdlog/fmt/fmt.h>

#include <vector>

#include "common/base/check.h"

namespace sc {
namespace {

// The nearest values at or below `from` and above it for which `works` is true, within [1, limit].
template <class Works>
std::vector<std::int64_t> nearest_two(std::int64_t from, std::int64_t limit, Works works) {
  std::vector<std::int64_t> found;
  for (std::int64_t n = from; n >= 1 && found.empty(); --n) {
    if (works(n)) found.push_back(n);
  }
  const std::size_t below = found.size();
  for (std::int64_t n = from + 1; n <= limit && found.size() == below; ++n) {
    if (works(n)) found.push_back(n);
  }
  return found;
}

std::string options(std::string_view flag, const std::vector<std::int64_t>& values) {
  if (values.empty()) return "";
  return fmt::format("\n    {}{}", flag, fmt::join(values, fmt::format("  or  {}", flag)));
}

std::string fixes(const BatchConfig& batch, const BatchRanks& ranks) {
  const std::int64_t d = ranks.mesh.size(Axis::data);
  const std::int64_t unit = batch.micro * d;
  const auto globals =
      nearest_two(batch.global, batch.global + unit, [unit](std::int64_t n) { return n % unit == 0; });
  const auto micros =
      nearest_two(batch.micro, batch.global / d, [&](std::int64_t n) { return batch.global % (n * d) == 0; });
  auto worlds = nearest_two(d, batch.global / batch.micro,
                            [&](std::int64_t n) { return batch.global % (batch.micro * n) == 0; });
  for (std::int64_t& world : worlds) world *= ranks.mesh.of_a_replica();
  return "one of" + options("--set batch.global=", globals) + options("--set batch.micro=", micros) +
         options(ranks.ranks_flag + " ", worlds);
}

std::string equation(const BatchConfig& batch, std::int64_t data_parallel) {
  const double exact = static_cast<double>(batch.global) / static_cast<double>(batch.micro * data_parallel);
  return fmt::format("accumulation = global / (micro x data-parallel ranks) = {} / ({} x {}) = {:.4g}",
                     batch.global, batch.micro, data_parallel, exact);
}

}  // namespace

BatchPlan plan_batch(const BatchConfig& batch, const BatchRanks& ranks, const Origins& origins) {
  const std::int64_t world = to_int(ranks.mesh.world()), tensor = ranks.mesh.size(Axis::tensor);
  if (!ranks.mesh.is_whole()) {
    const std::int64_t apart = ranks.mesh.of_a_replica();  // ranks that work on the same rows
    const auto worlds = nearest_two(world, world + apart, [apart](std::int64_t n) { return n % apart == 0; });
    const std::string of_tensor = tensor == 1 ? "" : fmt::format(" of {} tensor ranks each", tensor);
    throw InputError(ExitCode::usage, fmt::format("{} {}", ranks.ranks_flag, world),
                     fmt::format("{} ranks cannot be shared by {} stages{}", world,
                                 ranks.mesh.size(Axis::stages), of_tensor),
                     "one of" + options(ranks.ranks_flag + " ", worlds));
  }
  BatchPlan plan{batch.global, batch.micro, ranks.mesh.size(Axis::data), 1, ""};
  plan.accumulation = ceil_div(plan.global, plan.micro * plan.data_parallel);
  if (plan.global == plan.accumulation * plan.micro * plan.data_parallel) return plan;
  const std::string what = equation(batch, plan.data_parallel);
  if (!ranks.plan_only) {
    throw InputError(ExitCode::usage, origin_of_any(origins, {"batch.global", "batch.micro"}),
                     what + ", which is not whole", fixes(batch, ranks));
  }
  plan.note = fmt::format("{}, rounded up to {}; a real run of {} ranks would refuse this batch", what,
                          plan.accumulation, world);
  return plan;
}

}  // namespace sc
