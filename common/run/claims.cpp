#include "common/run/claims.h"

#include <spdlog/fmt/fmt.h>

#include "common/base/check.h"
#include "common/gpu/gpu_check.h"
#include "common/model/activation_plan.h"

namespace sc::detail {

void Claims::begin() {
  on_.ledger.reset_peaks();
  on_.witness.reset_peak();
  if (on_.gpu == nullptr) return;
  on_.gpu->reset_peak();
  allocations_before_ = on_.gpu->allocations();
}

// [anchor: as-predicted]
void Claims::check(const CommPlan& operations, std::int64_t step) {
  const Bytes ledger = on_.ledger.peak_total();
  measured_ = Measured{{on_.ledger.peaks(), ledger}, on_.ledger.peaks_by_name(), operations};
  const auto refuse = [&](const std::string& table) {
    throw ClaimError(fmt::format("rank {}: step {} did not hold what was predicted\n{}", to_int(shape_.rank),
                                 step, table));
  };
  if (!as_predicted(plan_.memory, plan_.operations, *measured_))
    refuse(format_predicted_measured(plan_.memory, plan_.operations, *measured_, shape_.mesh.world(),
                                     shape_.rank));
  if (on_.gpu != nullptr) {
    allocator_ = check_allocator(*on_.gpu, shape_, threads_, on_.ledger, allocations_before_);
    if (!allocator_->holds()) refuse(format_allocator(*allocator_));
    return;
  }
  // Only the device's bytes are LibTorch's: other places have pages of their own.
  const Bytes allowed = ledger + plan_op_scratch_bytes(shape_);
  if (on_.witness.peak() <= allowed) return;
  throw ClaimError(
      fmt::format("rank {}: LibTorch's allocator handed out {} bytes in step {}; the ledger knows {}, one "
                  "operation may take {} for itself: {} bytes went beside the ledger",
                  to_int(shape_.rank), on_.witness.peak().value(), step, ledger.value(),
                  (allowed - ledger).value(), (on_.witness.peak() - allowed).value()));
}

std::string Claims::report() const {
  if (!measured_) return "bytes and operations are checked in the second step, which this run did not have\n";
  const std::string text =
      format_predicted_measured(plan_.memory, plan_.operations, *measured_, shape_.mesh.world(), shape_.rank);
  return allocator_ ? text + format_allocator(*allocator_) : text;
}

}  // namespace sc::detail
