// One run on one rank: data, strategy, the loop over its steps, and what follows.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/comm/copies/copies.h"
#include "common/comm/copies/recording_copies.h"
#include "common/data/loader.h"
#include "common/data/sampler.h"
#include "common/gpu/gpu_profile.h"
#include "common/records/screen.h"
#include "common/run/claims.h"
#include "common/run/continuation.h"
#include "common/run/observer.h"
#include "common/run/run_files.h"
#include "common/run/run_shape.h"
#include "common/run/sample.h"
#include "common/run/saver.h"
#include "common/run/train_job.h"
#include "common/run/world.h"
#include "common/watch/fault.h"

namespace sc::detail {

/// A run. Everything that allocates does so in the constructor. Collective.
class Trainer {
 public:
  Trainer(const TrainJob& job, const Ground& ground);
  ~Trainer();
  /// Runs to the end. An error ends the process, and is reported once for all ranks.
  void run();

 private:
  [[nodiscard]] std::vector<TokenId> make_prompt() const;
  [[nodiscard]] StepScalars make_scalars() const;
  std::unique_ptr<Strategy> make_strategy();
  [[nodiscard]] RunRecord record_of_start() const;
  void announce() const;
  void train();
  [[nodiscard]] LossFactor loss_factor(std::int64_t step) const;
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
  [[nodiscard]] std::string counted() const;  // one line
  [[nodiscard]] std::string losses() const;
  [[nodiscard]] std::string says_of_checkpoints() const;
  [[nodiscard]] std::string part_of_validation() const;

  // [anchor: made-in-this-order]
  // All ranks must make the members in this order, since some constructors are collective.
  const TrainJob& job_;
  const Ground on_;
  const RunShape& shape_ = job_.shape;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  Fault fault_ = fault_of(job_);
  WatchedFiles files_{posix_file_ops(), on_.world, job_.line.watchdog_seconds};
  Dataset data_ = Dataset::open(files_, shape_.workload, cache_dir(), job_.line.evaluation.validation);
  std::optional<TestSet> test_ =
      job_.line.evaluation.test.empty()
          ? std::nullopt
          : std::optional<TestSet>(std::in_place, files_, job_.line.evaluation.test, shape_.workload,
                                   cache_dir());
  /// The number of tokens that the default screen shows as text.
  const std::int64_t unasked_ = job_.shows_text() ? tokens_to_show(shape_, data_) : 0;
  std::vector<TokenId> prompt_ = make_prompt();  // of --sample, or of the text on the default screen
  const Continuation goes_on_ = on_.resume == nullptr
                                    ? Continuation{}
                                    : continuation_of(job_, on_.resume->manifest(), data_, on_.world.comm());
  Sampler sampler_{data_, shape_.workload, {.step = job_.first_step, .row = goes_on_.rows}};
  StepScalars scalars_ = make_scalars();
  Loader loader_{
      sampler_, on_.ledger, {.rank = shape_.at(Axis::data), .ranks = shape_.mesh.size(Axis::data)}};
  RecordingCopies copies_{
      on_.gpu == nullptr ? make_host_copies(job_.plans.facts.links.copy_mbps) : make_gpu_copies(),
      on_.world.comm().shared_record()};
  Timeline timeline_;
  RunContext context_{.shape = shape_,
                      .comm = on_.world.comm(),
                      .ledger = on_.ledger,
                      .scalars = scalars_,
                      .copies = copies_,
                      .timeline = timeline_,
                      .record = on_.world.comm().shared_record(),
                      .first_step = job_.first_step};
  Claims claims_{job_, on_};
  /// The profiler of --profile. Made before the strategy, whose model uses it.
  std::unique_ptr<GpuProfile> profile_ = job_.line.profile ? profile_gpu() : nullptr;
  std::unique_ptr<Strategy> strategy_ = make_strategy();
  /// The writer of checkpoints; null if the run saves nothing.
  std::unique_ptr<Saver> saver_ =
      job_.line.checkpoints.every == 0
          ? nullptr
          : std::make_unique<Saver>(Saver::Parts{job_, *strategy_, on_.world.comm(), on_.ledger, files_,
                                                 data_.tokens_path(),
                                                 on_.resume != nullptr ? on_.resume->path() : Path()});
  RunRecord known_ = record_of_start();  // what this rank knows of the record
  /// The run's directory. Made after everything that may refuse, so that a run that cannot start leaves none.
  RunFiles records_{files_, job_, known_, on_.world.comm()};
  Observer observer_{job_, {on_.world, claims_, records_, timeline_, began_}};
  StepResult captured_;  // of a GPU's graph: the same tensors in every replay
  std::string written_;  // the line on the default screen
  std::int64_t skipped_in_a_row_ = 0;
};

}  // namespace sc::detail
