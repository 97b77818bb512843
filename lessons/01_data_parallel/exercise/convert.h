// An exercise of lesson 01; convert.cpp says what is asked for.
#pragma once

#include "common/comm/communicator.h"
#include "lessons/00_one_device/exercise/lent/tiny_gpt.h"

namespace sc {

/// The data and the schedule, the same on every rank.
class TrainingData {
 public:
  virtual ~TrainingData() = default;
  [[nodiscard]] virtual std::int64_t steps() const = 0;
  /// The number of micro-batches of one step, over the whole world: a multiple of the ranks.
  [[nodiscard]] virtual std::int64_t micro_batches() const = 0;
  /// Micro-batch j of a step: tokens and targets; a target < 0 has no loss.
  [[nodiscard]] virtual Batch batch(std::int64_t step, std::int64_t j) = 0;
  /// The number of targets that have a loss, over all micro-batches of a step.
  [[nodiscard]] virtual std::int64_t step_targets(std::int64_t step) const = 0;
  [[nodiscard]] virtual double learning_rate(std::int64_t step) const = 0;
  /// A seed that no other process has, such as a program gets by asking the clock.
  [[nodiscard]] virtual std::uint64_t fresh_seed() = 0;
};

/// Where results go: a terminal and a file.
class Results {
 public:
  virtual ~Results() = default;
  virtual void log(std::int64_t step, double loss) = 0;
  virtual void save(const at::Tensor& params) = 0;
};

void train(Communicator& comm, TrainingData& data, TinyGpt& model, Results& results);

}  // namespace sc
