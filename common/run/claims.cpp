#include "common/run/claims.h"

#include <spdlog/fmt/fmt.h>

#include <utility>

#include "common/base/check.h"
#include "common/gpu/gpu_check.h"
#include "common/model/activation_plan.h"
#include "common/records/ending.h"

namespace sc::detail {

Claims::Claims(const RunShape& shape, MemoryPlan memory, CommPlan operations, const Books& books)
    : shape_(shape), memory_(std::move(memory)), operations_(std::move(operations)), books_(books) {}

void Claims::begin() {
  books_.ledger.reset_peaks();
  books_.witness.reset_peak();
  if (books_.gpu == nullptr) return;
  books_.gpu->reset_peak();
  allocations_before_ = books_.gpu->allocations();
}

void Claims::check(const CommPlan& operations, std::int64_t step) {
  Measured& found = measured_.emplace();
  found.peak = books_.ledger.peaks();
  found.peak_by_name = books_.ledger.peaks_by_name();
  found.peak_total = books_.ledger.peak_total();
  found.operations = operations;
  if (!as_predicted(memory_, operations_, found)) {
    throw ClaimError(fmt::format(
        "rank {}: step {} did not hold what was predicted\n{}", to_int(shape_.rank), step,
        format_predicted_measured(memory_, operations_, found, shape_.mesh.world(), shape_.rank)));
  }
  books_.gpu == nullptr ? check_witness(step) : check_gpu_allocator(step);
}

void Claims::check_gpu_allocator(std::int64_t step) {
  allocator_ = check_allocator(*books_.gpu, shape_, books_.ledger, allocations_before_);
  if (allocator_->holds()) return;
  throw ClaimError(fmt::format("rank {}: step {} did not hold what was predicted\n{}", to_int(shape_.rank),
                               step, format_allocator(*allocator_)));
}

void Claims::check_witness(std::int64_t step) const {
  const Bytes ledger = books_.ledger.peak_total();  // beside the device nothing is LibTorch's
  const Bytes allowed = ledger + plan_op_scratch_bytes(shape_);
  if (books_.witness.peak() <= allowed) return;
  throw ClaimError(
      fmt::format("rank {}: LibTorch's allocator handed out {} bytes in step {}; the ledger knows {}, one "
                  "operation may take {} for itself: {} bytes went beside the ledger",
                  to_int(shape_.rank), books_.witness.peak().value(), step, ledger.value(),
                  (allowed - ledger).value(), (books_.witness.peak() - allowed).value()));
}

std::string Claims::brief() const { return format_brief(memory_, operations_, measured(), shape_.rank); }

std::string Claims::report() const {
  if (!measured_) return "bytes and operations are checked in the second step, which this run did not have\n";
  std::string text =
      format_predicted_measured(memory_, operations_, *measured_, shape_.mesh.world(), shape_.rank);
  if (!allocator_) return text;
  return text + format_allocator(*allocator_);
}

}  // namespace sc::detail
