// Faults on demand: what a rank does wrong, and when. No torch, no MPI.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/types.h"

namespace sc {

/// The fault of --inject kind@rank,step, e.g. "hang@1,7": what happens to a rank when it begins a step, as
/// the caller counts steps.
class Fault {
 public:
  enum class Kind : std::uint8_t { none, hang, kill, throw_error, nan };

  Fault() = default;  // no fault
  /// Parses the argument of --inject.
  ///   Errors  InputError 64 at "--inject": an unknown kind, a malformed text, a rank outside the world, a
  ///           negative step.
  static Fault parse(const std::string& text, WorldSize world);

  [[nodiscard]] Kind kind() const { return kind_; }
  [[nodiscard]] Rank rank() const { return rank_; }
  [[nodiscard]] std::int64_t step() const { return step_; }

  /// Carries out the fault if rank and step match. hang: never returns, while other threads, and so the
  /// heartbeat, go on; kill: SIGKILL; throw: std::runtime_error with rank and step.
  void at_step(Rank rank, std::int64_t step) const;
  /// Whether the caller is to make its gradients NaN in this step.
  [[nodiscard]] bool nan_at(Rank rank, std::int64_t step) const;

 private:
  [[nodiscard]] bool due(Rank rank, std::int64_t step) const {
    return kind_ != Kind::none && rank == rank_ && step == step_;
  }
  Kind kind_ = Kind::none;
  Rank rank_{0};
  std::int64_t step_ = 0;
};

}  // namespace sc
