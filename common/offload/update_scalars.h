// The numbers of an update that the device computes and the host needs.
#pragma once

#include <cstdint>
#include <string>

#include "common/offload/host_optimizer.h"
#include "common/offload/update_clock.h"
#include "common/strategy/strategy.h"

namespace sc {

/// Learning rate, step and clip factor on their way to the host; two updates take turns.
class UpdateScalars {
 public:
  /// Sends from `device` [4] to `host` [8], fp64 and pinned; [16] if updates have a guess besides.
  UpdateScalars(const at::Tensor& device, const at::Tensor& host);
  /// Sends the numbers of an update to of(update).
  LandedScalars send(const RunContext& context, std::int64_t update);
  /// Sends, before the norm is known, the numbers for a gradient that is finite and not clipped.
  LandedScalars send_guess(const RunContext& context, std::int64_t update);
  [[nodiscard]] const double* of(std::int64_t update) const {
    return host_[update % 2].const_data_ptr<double>();
  }
  void wait_sent() { sent_.wait(); }

  /// The text of Strategy::pending() before `step`: the pending update, or "{}".
  [[nodiscard]] std::string pending(const UpdateClock& clock, std::int64_t step) const;
  /// Reads what pending() wrote. True if there was a pending update, which is then update 0 of this part.
  bool restore(const std::string& pending);

 private:
  LandedScalars copy(const RunContext& context, at::Tensor& landing);
  at::Tensor device_, host_[2], guess_[2];
  Ticket sent_;
};

}  // namespace sc
