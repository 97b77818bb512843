#include "common/run/claims.h"

#include <spdlog/fmt/fmt.h>

#include <utility>

#include "common/base/check.h"
#include "common/base/text.h"
#include "common/gpu/gpu_check.h"
#include "common/model/activation_plan.h"

namespace sc::detail {

Claims::Claims(const RunShape& shape, MemoryPlan memory, CommPlan operations, Ledger& ledger,
               AllocatorWitness& witness, Gpu* gpu)
    : shape_(shape),
      memory_(std::move(memory)),
      operations_(std::move(operations)),
      ledger_(ledger),
      witness_(witness),
      gpu_(gpu) {}

void Claims::begin() {
  ledger_.reset_peaks();
  witness_.reset_peak();
  if (gpu_ == nullptr) return;
  gpu_->reset_peak();
  allocations_before_ = gpu_->allocations();
}

void Claims::check(const CommPlan& operations) {
  Measured& found = measured_.emplace();
  for (int p = 0; p < kPurposes; ++p) found.peak[p] = ledger_.peak(static_cast<Purpose>(p));
  found.peak_total = ledger_.peak_total();
  found.operations = operations;
  if (!as_predicted(memory_, operations_, found)) {
    throw ClaimError(
        fmt::format("rank {}: step {} did not hold what was predicted\n{}", to_int(shape_.rank), kCheckedStep,
                    format_predicted_measured(memory_, operations_, found, shape_.world, shape_.rank)));
  }
  gpu_ == nullptr ? check_witness() : check_gpu_allocator();
}

void Claims::check_gpu_allocator() {
  allocator_ = check_allocator(*gpu_, shape_, ledger_, allocations_before_);
  if (allocator_->holds()) return;
  throw ClaimError(fmt::format("rank {}: step {} did not hold what was predicted\n{}", to_int(shape_.rank),
                               kCheckedStep, format_allocator(*allocator_)));
}

void Claims::check_witness() const {
  const Bytes ledger = ledger_.peak_total() + ledger_.peak(Purpose::host);
  const Bytes allowed = ledger + plan_op_scratch_bytes(shape_);
  if (witness_.peak() <= allowed) return;
  throw ClaimError(
      fmt::format("rank {}: LibTorch's allocator handed out {} bytes in step {}; the ledger knows {}, one "
                  "operation may take {} for itself: {} bytes went beside the ledger",
                  to_int(shape_.rank), witness_.peak().value(), kCheckedStep, ledger.value(),
                  (allowed - ledger).value(), (witness_.peak() - allowed).value()));
}

std::string Claims::report() const {
  if (!measured_) return "bytes and operations are checked in the second step; this run had one\n";
  std::string text = format_predicted_measured(memory_, operations_, *measured_, shape_.world, shape_.rank);
  if (!allocator_) return text;
  return text + format_allocator(*allocator_);
}

}  // namespace sc::detail
