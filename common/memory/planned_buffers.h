// What a plan has declared, taken from the ledger by name: purpose, size, dtype and place stand in the plan.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/memory/ledger.h"

namespace sc {

/// Takes each buffer of a plan once, zeroed. The ledger outlives it.
class PlannedBuffers {
 public:
  PlannedBuffers(Ledger& ledger, const MemoryPlan& plan) : ledger_(ledger), left_(plan.items()) {}

  /// The next one of that name, flat. Undefined: the plan has none, or no more.
  at::Tensor zeros(const std::string& name, const MakeMemory& window = {});
  /// All that are left of that name.
  std::vector<at::Tensor> all_zeros(const std::string& name);
  /// Counts what is planned on the disk as long as what it returns lives.
  [[nodiscard]] std::vector<std::shared_ptr<void>> reserve_disk();

 private:
  Ledger& ledger_;
  std::vector<Buffer> left_;
};

}  // namespace sc
