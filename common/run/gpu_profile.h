// Times of operations on the GPU, by class: --profile. No CUDA in here; a build without GPU code has the same
// functions, which refuse.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/op_profile.h"

namespace sc {

/// One class of operations, summed over the profiled steps.
struct ProfileRow {
  std::string op;
  double milliseconds = 0, flops = 0, bytes = 0;
  std::int64_t calls = 0;
};

/// Brackets operations with CUDA events on the current stream. While it lives it is OpProfiler::current().
///   Cost  two events an operation; the times of neighbours overlap by a launch at most.
class GpuProfile final : public OpProfiler {
 public:
  GpuProfile();
  ~GpuProfile() override;
  GpuProfile(const GpuProfile&) = delete;
  GpuProfile& operator=(const GpuProfile&) = delete;

  void begin(std::string_view op, const OpCost& cost) override;
  void end() override;
  /// Between them operations are timed; outside begin() and end() do nothing. end_step waits for the GPU.
  void begin_step();
  void end_step();
  [[nodiscard]] std::int64_t steps() const;
  /// Longest first.
  [[nodiscard]] std::vector<ProfileRow> rows() const;
  /// Milliseconds of a step, from its first operation to its last.
  [[nodiscard]] double step_milliseconds() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sc
