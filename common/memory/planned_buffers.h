// Allocates the buffers that a plan declares, by name; purpose, size, dtype and place are the plan's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/memory/ledger.h"

namespace sc {

/// Hands out each buffer of a plan once, full of zeros. The ledger must outlive it.
class PlannedBuffers {
 public:
  PlannedBuffers(Ledger& ledger, const MemoryPlan& plan) : ledger_(ledger), left_(plan.items()) {}

  /// The next buffer of a name, as a flat tensor; undefined if the plan has no more of that name.
  at::Tensor zeros(const std::string& name, const MakeMemory& window = {});
  std::vector<at::Tensor> all_zeros(const std::string& name);
  /// Counts the planned bytes on disk until the returned pointers die.
  [[nodiscard]] std::vector<std::shared_ptr<void>> reserve_disk();

 private:
  Ledger& ledger_;
  std::vector<Buffer> left_;
};

}  // namespace sc
