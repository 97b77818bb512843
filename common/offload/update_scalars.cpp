#include "common/offload/update_scalars.h"

#include <spdlog/fmt/fmt.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace sc {

UpdateScalars::UpdateScalars(const at::Tensor& device, const at::Tensor& host)
    : device_(device),
      host_{host.narrow(0, 0, 4), host.narrow(0, 4, 4)},
      guess_{host.narrow(0, host.numel() - 8, 4), host.narrow(0, host.numel() - 4, 4)} {}

LandedScalars UpdateScalars::send(const RunContext& context, std::int64_t update) {
  sent_.wait();
  device_.select(0, 1).copy_(context.scalars.step);
  device_.select(0, 2).copy_(context.scalars.clip);
  return copy(context, host_[update % 2]);
}

// Sends what global_norm_and_clip would compute for a gradient that is finite and not clipped.
LandedScalars UpdateScalars::send_guess(const RunContext& context, std::int64_t update) {
  sent_.wait();
  device_.select(0, 1).copy_(context.scalars.step).add_(1);
  at::Tensor clip = device_.select(0, 2).fill_(1);
  if (context.scalars.loss_scale.defined()) clip.div_(context.scalars.loss_scale);
  return copy(context, guess_[update % 2]);
}

LandedScalars UpdateScalars::copy(const RunContext& context, at::Tensor& landing) {
  device_.select(0, 0).copy_(context.scalars.lr);
  sent_ = context.copies.to_host(device_, landing, {OpPurpose::scalars});
  return {sent_.end(), landing.const_data_ptr<double>()};
}

std::string UpdateScalars::pending(const UpdateClock& clock, std::int64_t step) const {
  if (!clock.pending(step)) return "{}";
  const double* numbers = of(clock.last_posted(step));
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
    // JSON has no NaN, which pending() writes as null.
    numbers[i] = number.is_null() ? std::nan("") : number.get<double>();
  }
  return true;
}

}  // namespace sc
