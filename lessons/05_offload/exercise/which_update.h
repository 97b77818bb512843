// Exercise of lesson 05; what is asked for stands in which_update.cpp.
#pragma once

#include <cstdint>

namespace sc {

/// All updates of a run are exact, or all but those of the first steps are delayed.
struct UpdateRule {
  bool delayed = false;
  /// So many steps come first that are exact all the same.
  std::int64_t warm_steps = 0;
};

/// A device that computes, a host that updates, and the link between them.
class OffloadedRun {
 public:
  virtual ~OffloadedRun() = default;
  [[nodiscard]] virtual int num_units() const = 0;
  /// Whether the host has made so many updates of the unit. Takes no time.
  [[nodiscard]] virtual bool updated(int unit, std::int64_t updates) = 0;
  /// Blocks until it has.
  virtual void wait(int unit, std::int64_t updates) = 0;
  /// Begins to copy the unit's parameters to the device, as they are on the host now: unit 0 first, each once
  /// per step.
  virtual void fetch(int unit) = 0;
  /// Forward of one unit with what was fetched, as soon as it has arrived: unit 0 first, each once per step.
  virtual void compute(int unit) = 0;
  /// The rest of the step: afterwards the host has its gradients.
  virtual void backward() = 0;
  /// Asks the host for the update with these gradients, and returns at once. The host makes one update after
  /// the other, each from unit 0 on. It overwrites a unit's parameters once this unit has been fetched
  /// `after_fetches` times, counted over all steps.
  virtual void post(std::int64_t after_fetches) = 0;
};

void offloaded_step(OffloadedRun& run, const UpdateRule& rule, std::int64_t step);

}  // namespace sc
