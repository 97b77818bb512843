#include "common/pipeline/pace.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <thread>

#include "common/base/check.h"

namespace sc {

void Pace::sleep_out(const pipedream::Action& action, Clock::time_point began) {
  const std::chrono::duration<double> computed = Clock::now() - began;
  const double cost = duration_of(share_.schedule, *share_.pace, action);
  double& least = least_.emplace(action.kind, computed.count()).first->second;
  least = std::min(least, computed.count());
  cost_[action.kind] = cost;
  std::this_thread::sleep_until(
      began + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(cost)));
}

void Pace::check(std::int64_t step) {
  constexpr double kRoom = 2;
  if (step != 1) {
    if (step == 0) least_.clear();  // the first step also sets things up
    return;
  }
  double factor = 0;
  pipedream::Kind worst{};
  for (const auto& [kind, computed] : least_) {
    const double needed = kRoom * computed / std::max(cost_[kind], 1e-9);
    if (needed > factor) factor = needed, worst = kind;
  }
  if (factor <= 1) return;
  throw InputError(
      ExitCode::usage, "pace",
      fmt::format("stage {} computes {:.2f} ms in one {}, whose cost is {:.2f} ms: it has to be twice "
                  "as much at least",
                  share_.stage, 1e3 * least_[worst], name_of(worst), 1e3 * cost_[worst]),
      cost_[worst] > 0 ? fmt::format("multiply all costs by {:.1f}, or train a smaller model", factor)
                       : "say in the file what it costs");
}

}  // namespace sc
