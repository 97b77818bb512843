// Which rows a step trains on: a function of the workload alone, the same on any number of ranks. No torch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/config/workload.h"
#include "common/data/dataset.h"

namespace sc {

/// A pseudo-random order of 0 .. count-1 that needs no memory: value(i) is computed from (key, i) alone. A
/// Feistel network permutes the next power of four; a value outside the range is sent through it again until
/// it is inside, which keeps the result a permutation.
///   Source  Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002, section 4.
class Permutation {
 public:
  Permutation(std::int64_t count, std::uint64_t key);
  [[nodiscard]] std::int64_t value(std::int64_t i) const;

 private:
  std::uint64_t count_, key_;
  int half_bits_ = 1;
};

/// The row at which a run begins: step `step` takes the rows from position `row` of the training sequence on.
struct RowStart {
  std::int64_t step = 0, row = 0;
};

/// Chooses the rows of every training step and of the evaluation.
///   Training    Rows form an endless sequence: all rows in the order of epoch 0, all rows in the order of
///               epoch 1, ... (a different permutation each). A step takes the next `global` rows;
///               micro-batch j takes `micro` of them, from j x micro on. So every row comes once per epoch,
///               an epoch may end inside a step, and no row is dropped. Micro-batch j of step s is a function
///               of (seed, s, j), of where the run begins, and of the data.
///   Evaluation  validation_rows fixed rows, spread evenly over the validation part, whatever `micro` is.
///               They are grouped in micro-batches; the last one may have rows without targets.
class Sampler {
 public:
  /// Chooses from `data`, which must outlive this object.
  ///   Errors  InputError (exit 64) if batch.global is not a multiple of batch.micro.
  Sampler(const Dataset& data, const Workload& workload, RowStart start = {});

  /// The number of micro-batches of one step, summed over ranks.
  [[nodiscard]] std::int64_t micro_batches() const { return batch_.global / batch_.micro; }
  /// The position in the training sequence at which step s begins: the number of rows trained on before it.
  [[nodiscard]] std::int64_t position(std::int64_t step) const {
    return start_.row + (step - start_.step) * batch_.global;
  }
  /// The `micro` rows of micro-batch j of a step.
  [[nodiscard]] std::vector<RowIndex> rows(std::int64_t step, std::int64_t j) const;
  /// Writes micro-batch j of a step to `tokens` and `targets`, [micro x T] each.
  void fill(std::int64_t step, std::int64_t j, std::span<std::int64_t> tokens,
            std::span<std::int64_t> targets) const;
  /// The number of targets >= 0 in a step's global batch, by which its loss is divided.
  [[nodiscard]] std::int64_t step_targets(std::int64_t step) const;
  [[nodiscard]] double steps_per_epoch() const;

  /// The number of rows of one evaluation, summed over ranks; 0 without a validation part.
  [[nodiscard]] std::int64_t validation_rows() const {
    return validation_.count() > 0 ? validation_rows_ : 0;
  }
  [[nodiscard]] std::int64_t validation_micro_batches() const {
    return ceil_div(validation_rows(), batch_.micro);
  }
  /// What validation_micro_batches() is with a validation part, there or not; it sizes buffers.
  [[nodiscard]] std::int64_t evaluated_at_once() const { return ceil_div(validation_rows_, batch_.micro); }
  /// The row of the validation part that is row k of the evaluation, 0 <= k < validation_rows().
  [[nodiscard]] RowIndex validation_row(std::int64_t k) const;
  /// Writes micro-batch i of the evaluation. Past the last row come tokens 0 without targets, so that ranks
  /// with a smaller share can take part in the same operations.
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
/// Rank r's contiguous run when `total` micro-batches are shared by `ranks` data-parallel ranks. All runs
/// have the same size, ceil(total / ranks). In training the division is exact (config refuses otherwise); in
/// evaluation the last runs may reach past `total`.
MicroBatchRun micro_batch_run(std::int64_t total, std::int64_t rank, std::int64_t ranks);

}  // namespace sc
