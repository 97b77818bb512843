// Micro-batches as tensors on the compute device.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "common/data/batch.h"
#include "common/data/sampler.h"
#include "common/memory/ledger.h"
#include "common/memory/plan.h"

namespace sc {

/// This rank's place among the ranks that share a step's micro-batches. All stages of a pipeline share it.
struct DataShare {
  std::int64_t rank = 0, ranks = 1;
};

/// Fills this rank's micro-batches of a step, or of the evaluation, into buffers that are allocated once.
///   Memory    purpose workspace: "tokens" and "targets", [M, B, T] int64 each, and "scale", [] fp32, with M
///             = max(global / (micro x ranks), ceil(ceil(validation_rows / micro) / ranks)): plan_loader().
///             On a GPU also pinned: "tokens_staging", [2, 2, M, B, T] int64: two steps' tokens and targets.
///   Copies    to a GPU do not block. The host memory that train(s) copies from is rewritten for step s + 2
///             and possibly by validation(), so the caller must have waited for step s by then.
///   Lifetime  train() and validation() return views of the same buffers, valid until the next call of
///             either. A strategy that needs micro-batches for longer (asynchronous pipelines) copies them.
class Loader {
 public:
  /// Loads what `sampler` chooses. `sampler` and `ledger` must outlive this object.
  Loader(const Sampler& sampler, Ledger& ledger, DataShare share);

  /// This rank's micro-batches of a step, [rank A, (rank + 1) A) of all with A = accumulation, in ascending
  /// order. Each batch's `scale` includes `factor`.
  std::span<const Batch> train(std::int64_t step, const LossFactor& factor = {});
  /// Gathers a step's tokens in host memory ahead of train(step), while a GPU is busy. Does nothing on a CPU.
  void prefetch(std::int64_t step);
  /// This rank's share of the evaluation. All ranks get the same number of micro-batches, the last of which
  /// may have no targets. Empty without a validation part.
  std::span<const Batch> validation();
  /// This rank's share of part `round` (0, 1, ...) of `rows`. All ranks get as many micro-batches as there
  /// are buffers, the last of which may have no targets; none after the last part. The caller must have
  /// waited for the part before.
  std::span<const Batch> rows(const Rows& rows, std::int64_t round);

 private:
  /// The tensors that the host writes, [M, B, T] each.
  struct HostSide {
    at::Tensor tokens, targets;
  };
  /// Where the host puts a step's tokens: on a GPUtwo staging buffers in turn, on a CPU the batches.
  [[nodiscard]] HostSide host_side(std::int64_t step) const;
  /// Calls `write(m, tokens, targets)` for the first `count` micro-batch slots.
  template <class Write>
  static void fill(const HostSide& host, std::int64_t count, Write write);
  void fill_train(std::int64_t step);
  /// Copies the first `count` micro-batch slots to the device; on a CPU there is nothing to copy.
  void send(std::int64_t step, std::int64_t count);

  const Sampler& sampler_;
  DataShare share_;
  at::Tensor tokens_, targets_;    // [M, B, T] on the device
  at::Tensor scale_;               // []
  at::Tensor staging_;             // [2, 2, M, B, T] pinned, on a GPU only
  std::int64_t filled_step_ = -1;  // the training step that the host wrote last
  std::int64_t filled_targets_ = 0;
  std::vector<std::int64_t> filled_with_loss_;  // targets of each micro-batch of that step on this rank
  std::vector<Batch> batches_;                  // views of the tensors above
};

}  // namespace sc
