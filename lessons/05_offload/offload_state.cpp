// What lesson 05 holds between steps: for a checkpoint, and from one.
#include <spdlog/fmt/fmt.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "offload.h"

namespace sc {

std::vector<StateSlice> Offload::state() const {
  for (const OpEnd& end : landed_) end.wait();
  std::vector<StateSlice> state = update_->state(
      options_.update == UpdateKind::delayed && steps_ > 0 ? static_cast<int>((steps_ + 1) % 2) : 0);
  for (StateSlice& slice : state)
    slice.pending = slice.purpose == Purpose::gradients && puts_off() && (steps_ > 0 || restoring_);
  state.insert(state.begin(), passes_.last_local());
  return state;
}

std::string Offload::pending() {
  if (!puts_off() || steps_ == 0) return "{}";
  const auto* scalars = scalars_host_[(steps_ + 1) % 2].const_data_ptr<double>();
  const nlohmann::json pending = {{"put_off", fmt::format("the update by step {}'s gradient", done() - 1)},
                                  {"delayed_update", {scalars[0], scalars[1], scalars[2]}}};
  return pending.dump();
}

bool Offload::resume(const ResumeFrom& from) {
  auto* scalars = scalars_host_[0].mutable_data_ptr<double>();
  const nlohmann::json pending = nlohmann::json::parse(from.pending);
  restoring_ = pending.contains("delayed_update") && puts_off();
  for (std::size_t i = 0; restoring_ && i < 3; ++i) {
    const nlohmann::json& number = pending.at("delayed_update").at(i);
    scalars[i] = number.is_null() ? std::nan("") : number.get<double>();  // JSON has no NaN
  }
  from.restore();
  if (!restoring_) return pending.empty();
  restoring_ = false;
  taken_over_ = 1;
  update_->post({.landed = landed_, .scalars_landed = {}, .scalars = scalars, .turn = 0, .after_sends = 1});
  ++steps_;
  return true;
}

}  // namespace sc
