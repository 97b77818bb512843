#include "common/offload/update_scalars.h"

#include <spdlog/fmt/fmt.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace sc {

UpdateScalars::UpdateScalars(const at::Tensor& device, const at::Tensor& host)
    : device_(device), host_{host.narrow(0, 0, 4), host.narrow(0, 4, 4)} {}

bool needs_no_norm(const Workload& workload) {
  return workload.optim.clip == 0 && workload.optim.nonfinite == OnNonFinite::stop &&
         workload.precision.dtype != DType::f16;
}

OpEnd UpdateScalars::send(const RunContext& context, std::int64_t update, bool before_norm) {
  sent_.wait();
  device_.select(0, 0).copy_(context.scalars.lr);
  device_.select(0, 1).copy_(context.scalars.step);
  device_.select(0, 2).copy_(context.scalars.clip);
  if (before_norm) device_.select(0, 1).add_(1), device_.select(0, 2).fill_(1);
  sent_ = context.copies.to_host(device_, host_[update % 2], {OpPurpose::scalars});
  return sent_.end();
}

std::string UpdateScalars::pending(const UpdateClock& clock, std::int64_t step) const {
  if (!clock.pending(step)) return "{}";
  const double* numbers = of(clock.posted(step) - 1);
  const nlohmann::json pending = {{"put_off", fmt::format("the update by step {}'s gradient", step - 1)},
                                  {"delayed_update", {numbers[0], numbers[1], numbers[2]}}};
  return pending.dump();
}

bool UpdateScalars::restore(const std::string& pending) {
  const nlohmann::json saved = nlohmann::json::parse(pending);
  if (!saved.contains("delayed_update")) return false;
  auto* numbers = host_[0].mutable_data_ptr<double>();
  for (std::size_t i = 0; i < 3; ++i) {
    const nlohmann::json& number = saved.at("delayed_update").at(i);
    numbers[i] = number.is_null() ? std::nan("") : number.get<double>();  // JSON has no NaN
  }
  return true;
}

}  // namespace sc
