// One run on one rank: data, strategy, the loop over its steps, and what comes after it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/comm/copies/recording_copies.h"
#include "common/data/loader.h"
#include "common/data/sampler.h"
#include "common/gpu/gpu_profile.h"
#include "common/records/screen.h"
#include "common/run/claims.h"
#include "common/run/continuation.h"
#include "common/run/observer.h"
#include "common/run/run_files.h"
#include "common/run/sample.h"
#include "common/run/saver.h"
#include "common/run/train_job.h"
#include "common/run/world.h"
#include "common/watch/fault.h"

namespace sc::detail {

/// Everything that allocates does so in the constructor.
class Trainer {
 public:
  Trainer(const TrainJob& job, const Ground& ground);
  ~Trainer();
  /// To the end; of a failure: the process's, reported once for all ranks.
  void run();

 private:
  std::unique_ptr<Strategy> make_strategy();
  void announce() const;
  void train();
  void prepare(std::span<const Batch> batches, std::int64_t step);
  StepResult enqueue(std::span<const Batch> batches, std::int64_t step);
  StepResult replayed(std::span<const Batch> batches, std::int64_t step);
  void skip_or_stop(const StepRecord& step);
  void save(std::int64_t done);
  void end_if_asked(std::int64_t done);
  [[noreturn]] void save_and_end(std::int64_t done);
  [[nodiscard]] Position position_after(std::int64_t done) const;
  [[nodiscard]] bool evaluates_after(std::int64_t done) const;
  std::optional<double> validation_loss(std::int64_t done);
  void require_finite(double loss, const std::string& where);
  void evaluate();
  void write_text();
  void save_weights_if_finite();
  Path finish();
  void inform(const Path& record);
  void say_the_end(const Path& record) const;
  void say_all(const Path& record) const;
  void say_briefly(const Path& record) const;
  [[nodiscard]] std::string checks(Look look) const;
  [[nodiscard]] std::string counted() const;  // a line
  [[nodiscard]] std::string losses() const;
  [[nodiscard]] std::string says_of_checkpoints() const;
  [[nodiscard]] std::string part_of_validation() const;
  [[nodiscard]] bool speaks() const { return shape_.rank == Rank{0}; }

  const TrainJob& job_;
  const Ground on_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  RunShape shape_;
  Fault fault_;
  WatchedFiles files_;
  Dataset data_;
  std::optional<TestSet> test_;
  const std::int64_t unasked_;   // tokens of text that the default screen shows
  std::vector<TokenId> prompt_;  // of --sample, or of that text
  const Continuation goes_on_;
  Sampler sampler_;
  StepScalars scalars_;
  Loader loader_;
  RecordingCopies copies_;
  Timeline timeline_;
  RunContext context_;
  Claims claims_;
  std::unique_ptr<GpuProfile> profile_;  // --profile; before the strategy, whose model asks for it
  std::unique_ptr<Strategy> strategy_;
  std::unique_ptr<Saver> saver_;  // null: the run saves nothing
  RunRecord known_;               // what the run comes to, as far as this rank knows
  RunFiles records_;              // after all that may refuse: a run that cannot start leaves no folder
  Observer observer_;
  StepResult captured_;  // of a GPU's graph: the same tensors at every replay
  std::string written_;  // the line of that text
  std::int64_t skipped_in_a_row_ = 0;
};

}  // namespace sc::detail
