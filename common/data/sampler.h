// Which rows a step trains on. The same on any number of ranks: only the workload decides. No torch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/config/workload.h"
#include "common/data/dataset.h"

namespace sc {

/// A pseudo-random order of 0 .. count-1 that needs no memory: value(i) is computed from (key, i) alone. A
/// Feistel network permutes the next power of four; values that fall outside are sent through again until
/// they do not, which keeps it a permutation.
///   Source  Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002, section 4.
class Permutation {
 public:
  Permutation(std::int64_t count, std::uint64_t key);
  [[nodiscard]] std::int64_t value(std::int64_t i) const;

 private:
  std::uint64_t count_, key_;
  int half_bits_ = 1;
};

/// Where a run begins: its first step takes the rows from position `row` on.
struct RowStart {
  std::int64_t step = 0, row = 0;
};

/// Rows of every training step and of the evaluation.
///   Training    Rows stand in an endless sequence: all rows in the order of epoch 0, all rows in the order
///               of epoch 1, ... (another permutation each). A step takes the next `global` of them,
///               micro-batch j of it `micro` from j x micro. So every row comes once an epoch, an epoch may
///               end inside a step, and none is dropped; micro-batch j of step s is a function of (seed, s,
///               j), of where the run begins, and of the data.
///   Evaluation  validation_rows fixed rows, spread evenly over the validation part: the same ones whatever
///               micro is.
///               They stand in micro-batches, of which the last one may have rows without a target.
class Sampler {
 public:
  /// `data` must outlive it.
  ///   Errors  InputError (exit 64) if batch.global is not a multiple of batch.micro.
  Sampler(const Dataset& data, const Workload& workload, RowStart start = {});

  /// Micro-batches of one step, over all ranks.
  [[nodiscard]] std::int64_t micro_batches() const { return batch_.global / batch_.micro; }
  /// Where step s begins in the sequence: so many rows are done when the step before it is.
  [[nodiscard]] std::int64_t position(std::int64_t step) const {
    return start_.row + (step - start_.step) * batch_.global;
  }
  /// The rows of micro-batch j of step s, `micro` of them.
  [[nodiscard]] std::vector<RowIndex> rows(std::int64_t step, std::int64_t j) const;
  /// tokens, targets: [micro x T] of that micro-batch.
  void fill(std::int64_t step, std::int64_t j, std::span<std::int64_t> tokens,
            std::span<std::int64_t> targets) const;
  /// Targets >= 0 of the whole global batch: what the step's loss is divided by.
  [[nodiscard]] std::int64_t step_targets(std::int64_t step) const;
  /// Steps that one pass over the training rows takes.
  [[nodiscard]] double steps_per_epoch() const;

  /// Rows of one evaluation, over all ranks; 0 if there is no validation part.
  [[nodiscard]] std::int64_t validation_rows() const {
    return validation_.count() > 0 ? validation_rows_ : 0;
  }
  /// Micro-batches that they stand in.
  [[nodiscard]] std::int64_t validation_micro_batches() const {
    return ceil_div(validation_rows(), batch_.micro);
  }
  /// The same, whether there is a validation part or not.
  [[nodiscard]] std::int64_t evaluated_at_once() const { return ceil_div(validation_rows_, batch_.micro); }
  /// Row k of the evaluation, 0 <= k < validation_rows(), in the validation part.
  [[nodiscard]] RowIndex validation_row(std::int64_t k) const;
  /// Micro-batch i of the evaluation. After the last row: tokens 0 and no targets, so that ranks whose share
  /// is smaller can take part in the same operations.
  void fill_validation(std::int64_t i, std::span<std::int64_t> tokens, std::span<std::int64_t> targets) const;

  [[nodiscard]] const BatchConfig& batch() const { return batch_; }

 private:
  [[nodiscard]] RowIndex row_at(std::int64_t position) const;

  const Rows& train_;
  const Rows& validation_;
  BatchConfig batch_;
  RowStart start_;
  std::uint64_t seed_;
  std::int64_t validation_rows_;
};

/// The micro-batches [begin, begin + size) of a rank.
struct MicroBatchRun {
  std::int64_t begin = 0, size = 0;
};
/// Rank r's contiguous run when `total` micro-batches go to `ranks` data-parallel ranks. All runs have the
/// same size, ceil(total / ranks): in training the division is exact (config refuses otherwise), in
/// evaluation the last runs may reach past `total`.
MicroBatchRun micro_batch_run(std::int64_t total, std::int64_t rank, std::int64_t ranks);

}  // namespace sc
