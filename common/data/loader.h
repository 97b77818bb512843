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

/// Who this rank is among those that share a step's micro-batches. Stages of one pipeline have the same
/// `rank`.
struct DataShare {
  std::int64_t rank = 0, ranks = 1;
};

/// Fills this rank's micro-batches of a step, or of the evaluation, into buffers that are allocated once.
///   Memory    purpose workspace: "tokens" and "targets", [M, B, T] int64 each, and "scale", [] fp32, with
///             M = max(global / (micro x ranks), ceil(ceil(validation_rows / micro) / ranks)): plan_loader().
///             On a GPU also pinned: "tokens_staging", [2, 2, M, B, T] int64: two steps' tokens and targets.
///   Copies    to a GPU do not block. What train(s) reads in host memory is written again for step s + 2, so
///             the caller must have waited for step s by then, and before validation(), whose memory that may
///             be.
///   Lifetime  train() and validation() return views of the same buffers: what one returned is gone at the
///             next call of either. A strategy that still needs micro-batches then (asynchronous pipelines)
///             copies them.
class Loader {
 public:
  /// `sampler` and `ledger` must outlive it.
  Loader(const Sampler& sampler, Ledger& ledger, DataShare share);

  /// This rank's micro-batches of a step, in ascending order: [rank x A, (rank + 1) x A) with A =
  /// accumulation. Their losses are multiplied by `factor`, too.
  std::span<const Batch> train(std::int64_t step, const LossFactor& factor = {});
  /// Gathers a step's tokens in host memory ahead of train(step), while a GPU is busy. Nothing to do on a
  /// CPU.
  void prefetch(std::int64_t step);
  /// This rank's share of the evaluation: the same number on every rank, surplus ones without targets. Empty
  /// without a validation part.
  std::span<const Batch> validation();
  /// This rank's share of a part of `rows`, as many at a time as there are buffers; surplus ones have no
  /// targets. Empty on all ranks once `round`, from 0 on, is behind the last. The round before has been
  /// waited for.
  std::span<const Batch> rows(const Rows& rows, std::int64_t round);

 private:
  /// Where the host writes: [M, B, T] each.
  struct HostSide {
    at::Tensor tokens, targets;
  };
  /// Of the steps of this parity. On a CPU the batches themselves, whatever the parity.
  [[nodiscard]] HostSide host_side(std::int64_t step) const;
  /// Lets `write(m, tokens, targets)` fill the first `count` slots.
  template <class Write>
  static void fill(const HostSide& host, std::int64_t count, Write write);
  void fill_train(std::int64_t step);
  /// The first `count` slots to the device, if they are not there.
  void send(std::int64_t step, std::int64_t count);

  const Sampler& sampler_;
  DataShare share_;
  at::Tensor tokens_, targets_;    // [M, B, T] on the device
  at::Tensor scale_;               // []
  at::Tensor staging_;             // [2, 2, M, B, T] pinned, on a GPU only
  std::int64_t filled_step_ = -1;  // the last training step that the host wrote, and its targets
  std::int64_t filled_targets_ = 0;
  std::vector<std::int64_t> filled_with_loss_;  // the same: of each micro-batch of this rank
  std::vector<Batch> batches_;                  // views of the above
};

}  // namespace sc
