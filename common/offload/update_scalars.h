// The three numbers of an update that the device computes and the host needs.
#pragma once

#include <cstdint>
#include <string>

#include "common/strategy/strategy.h"

namespace sc {

/// Learning rate, step and clip factor, on their way to the host; of two updates in turn.
class UpdateScalars {
 public:
  /// device [4], host [8] fp64, pinned.
  UpdateScalars(const at::Tensor& device, const at::Tensor& host);
  /// Sends those of the coming update. Until `end` has passed they are not in of(turn).
  OpEnd send(const RunContext& context, int turn);
  [[nodiscard]] const double* of(int turn) const { return host_[turn].const_data_ptr<double>(); }
  void wait_sent() { sent_.wait(); }

  /// For Strategy::pending(): an update that is put off.
  [[nodiscard]] std::string saved(int turn, std::int64_t step) const;
  /// Whether there was one: then its numbers are in of(0).
  bool restore(const std::string& pending);

 private:
  at::Tensor device_, host_[2];
  Ticket sent_;
};

}  // namespace sc
