// The three numbers of an update that the device computes and the host needs.
#pragma once

#include <cstdint>
#include <string>

#include "common/offload/update_clock.h"
#include "common/strategy/strategy.h"

namespace sc {

/// Whether an update's scalars are known without its gradients: nothing clips, no loss is scaled, and what is not finite ends the run.
bool needs_no_norm(const Workload& workload);

/// Learning rate, step and clip factor, on their way to the host; of two updates in turn.
class UpdateScalars {
 public:
  /// device [4], host [8] fp64, pinned.
  UpdateScalars(const at::Tensor& device, const at::Tensor& host);
  /// Sends that update's. Until `end` has passed they are not in of(update).
  ///   before_norm  of an update that needs none: it counts itself, and clips nothing
  OpEnd send(const RunContext& context, std::int64_t update, bool before_norm = false);
  [[nodiscard]] const double* of(std::int64_t update) const {
    return host_[update % 2].const_data_ptr<double>();
  }
  void wait_sent() { sent_.wait(); }

  /// Strategy::pending() before `step`: the update that is put off, or "{}".
  [[nodiscard]] std::string pending(const UpdateClock& clock, std::int64_t step) const;
  /// Whether there was one: then it is update 0 here.
  bool restore(const std::string& pending);

 private:
  at::Tensor device_, host_[2];
  Ticket sent_;
};

}  // namespace sc
