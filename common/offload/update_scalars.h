// The three numbers of an update that the device computes and the host needs.
#pragma once

#include <cstdint>
#include <string>

#include "common/offload/host_optimizer.h"
#include "common/offload/update_clock.h"
#include "common/strategy/strategy.h"

namespace sc {

/// Learning rate, step and clip factor, on their way to the host; of two updates in turn.
class UpdateScalars {
 public:
  /// device [4], host [8] fp64, pinned; [16] where updates have both a guess and the truth.
  UpdateScalars(const at::Tensor& device, const at::Tensor& host);
  /// Sends that update's: they are in of(update).
  LandedScalars send(const RunContext& context, std::int64_t update);
  /// Before the norm: what they will be if nothing is clipped and all is finite.
  LandedScalars send_guess(const RunContext& context, std::int64_t update);
  [[nodiscard]] const double* of(std::int64_t update) const {
    return host_[update % 2].const_data_ptr<double>();
  }
  void wait_sent() { sent_.wait(); }

  /// Strategy::pending() before `step`: the update that is put off, or "{}".
  [[nodiscard]] std::string pending(const UpdateClock& clock, std::int64_t step) const;
  /// Whether there was one: then it is update 0 here.
  bool restore(const std::string& pending);

 private:
  LandedScalars copy(const RunContext& context, at::Tensor& landing);
  at::Tensor device_, host_[2], guess_[2];
  Ticket sent_;
};

}  // namespace sc
