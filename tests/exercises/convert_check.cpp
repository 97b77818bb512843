#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>

#include <cmath>
#include <cstring>
#include <map>

#include "common/optim/lr_schedule.h"
#include "lessons/01_data_parallel/exercise/convert.h"
#include "lessons/reference/reference_order.h"
#include "tests/exercises/check.h"
#include "tests/exercises/tiny_data.h"
#include "tests/exercises/world.h"
#include "tests/support/harness.h"

namespace sc::exercise {
namespace {

/// What a rank did, as seen from outside.
struct Rank01 {
  std::map<const void*, std::pair<std::int64_t, std::int64_t>> handed_out;  // by tokens: (step, micro-batch)
  std::vector<std::pair<std::int64_t, std::int64_t>> trained;
  std::vector<double> scales;
  std::vector<Batch> alive;  // so that addresses stay theirs
  at::Tensor start, end;     // parameters before the first forward; after the last step
  std::vector<double> losses;
  int saves = 0;
};

std::int64_t targets_of(const Workload& w, std::int64_t step) {
  std::int64_t targets = 0;
  for (std::int64_t j = 0; j < w.batch.global; ++j) targets += count_targets(tiny_batch(w, step, j));
  return targets;
}

class Data : public TrainingData {
 public:
  Data(const Workload& workload, int rank, Rank01& seen) : workload_(workload), rank_(rank), seen_(seen) {}
  std::int64_t steps() const override { return workload_.steps; }
  std::int64_t micro_batches() const override { return workload_.batch.global; }
  Batch batch(std::int64_t step, std::int64_t j) override {
    Batch batch = tiny_batch(workload_, step, j);
    seen_.handed_out[batch.tokens.const_data_ptr()] = {step, j};
    seen_.alive.push_back(batch);
    return batch;
  }
  std::int64_t step_targets(std::int64_t step) const override { return targets_of(workload_, step); }
  double learning_rate(std::int64_t step) const override {
    return sc::learning_rate(workload_.optim, step, workload_.steps);
  }
  std::uint64_t fresh_seed() override { return workload_.seed + static_cast<std::uint64_t>(rank_); }

 private:
  const Workload& workload_;
  int rank_;
  Rank01& seen_;
};

class Seen : public Results {
 public:
  explicit Seen(Rank01& seen) : seen_(seen) {}
  void log(std::int64_t, double loss) override { seen_.losses.push_back(loss); }
  void save(const at::Tensor&) override { ++seen_.saves; }

 private:
  Rank01& seen_;
};

std::vector<Rank01> train_world(World& world, const Workload& workload) {
  return world.each([&](RecordingCommunicator& comm) {
    Rank01 seen;
    TinyGpt model(workload, comm.size());
    model.observe({.forward =
                       [&](const Batch& batch, double scale) {
                         if (!seen.start.defined()) seen.start = model.params().clone();
                         seen.trained.push_back(seen.handed_out[batch.tokens.const_data_ptr()]);
                         seen.scales.push_back(scale);
                       },
                   .update = [] {}});
    Data data(workload, static_cast<int>(comm.rank()), seen);
    Seen results(seen);
    train(comm, data, model, results);
    seen.end = model.params().clone();
    return seen;
  });
}

/// The results of lesson 00 in the order of sums of a world with that many ranks.
struct Reference {
  at::Tensor params;
  std::vector<double> losses;
};
Reference reference(const Workload& workload, int ranks) {
  World world(1);
  Reference result;
  world.run([&](RecordingCommunicator& comm) {
    test::Alone<ReferenceOrder> zero(comm, {.workload = workload, .mesh = {}}, {.virtual_ranks = ranks});
    for (std::int64_t step = 0; step < workload.steps; ++step) {
      std::vector<Batch> batches;
      for (std::int64_t j = 0; j < workload.batch.global; ++j) {
        batches.push_back(tiny_batch(workload, step, j));
        batches.back().scale =
            at::full({}, 1.0 / static_cast<double>(targets_of(workload, step)), at::kFloat);
      }
      zero.scalars.lr.fill_(learning_rate(workload.optim, step, workload.steps));
      const double* sums = zero.lesson.train_step(batches).sums.const_data_ptr<double>();
      result.losses.push_back(sums[0] / sums[1]);
    }
    std::vector<at::Tensor> units;
    for (const StateSlice& slice : zero.lesson.state())
      if (slice.purpose == Purpose::parameters) units.push_back(slice.copy());
    result.params = at::cat(units);
  });
  return result;
}

std::string rank_text(std::size_t rank) { return "rank " + std::to_string(rank); }

/// The text about one of the list's points that is not met.
std::string missing(int point, const std::string& what) { return "\n" + std::to_string(point) + ". " + what; }

std::string check_rows(const std::vector<Rank01>& ranks, const Workload& w) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::size_t>> trained;
  for (std::size_t r = 0; r < ranks.size(); ++r)
    for (const auto& which : ranks[r].trained) trained[which].push_back(r);
  for (std::int64_t step = 0; step < w.steps; ++step)
    for (std::int64_t j = 0; j < w.batch.global; ++j) {
      const std::vector<std::size_t>& who = trained[{step, j}];
      const std::string what = "micro-batch " + std::to_string(j) + " of step " + std::to_string(step);
      if (who.empty()) return missing(1, "nobody trained on " + what);
      if (who.size() > 1)
        return missing(
            1, rank_text(who[0]) + " and " + rank_text(who[1]) + " trained on the same rows: " + what);
      const std::size_t owner =
          static_cast<std::size_t>(j) * ranks.size() / static_cast<std::size_t>(w.batch.global);
      if (who[0] != owner)
        return missing(1, what + " is " + rank_text(owner) + "'s, it was trained by " + rank_text(who[0]));
    }
  return {};
}

std::string check_start(const std::vector<Rank01>& ranks) {
  for (std::size_t r = 1; r < ranks.size(); ++r)
    if (std::memcmp(ranks[r].start.const_data_ptr(), ranks[0].start.const_data_ptr(),
                    ranks[0].start.nbytes()) != 0)
      return missing(2, "replicas start different: " + rank_text(r) + "'s parameters are not rank 0's");
  return {};
}

std::string check_sums(const World& world, std::int64_t params, std::int64_t steps) {
  std::int64_t gradients = 0, others = 0;
  for (const auto& [op, count] : world.issued(0).count) {
    if (op.kind != CommKind::all_reduce) continue;
    (op.elements.value() > 4 ? gradients : others) += count * op.elements.value();
  }
  const std::string per_step = " elements of gradient all-reduced in " + std::to_string(steps) + " steps, ";
  if (gradients == 0)
    return missing(3, "gradients were not summed over the ranks: no all-reduce carried them");
  if (gradients != steps * params)
    return missing(3, std::to_string(gradients) + per_step + std::to_string(steps * params) + " are needed");
  if (others > 4 * steps)
    return missing(3, std::to_string(others) + " other numbers all-reduced, 4 a step are enough");
  return {};
}

std::string check_divisor(const std::vector<Rank01>& ranks, const Workload& w) {
  for (std::size_t r = 0; r < ranks.size(); ++r)
    for (std::size_t i = 0; i < ranks[r].scales.size(); ++i) {
      const std::int64_t step = ranks[r].trained[i].first, targets = targets_of(w, step);
      if (ranks[r].scales[i] == 1.0 / static_cast<double>(targets)) continue;
      return missing(4, rank_text(r) + " divided by " +
                            std::to_string(std::llround(1.0 / ranks[r].scales[i])) + " targets in step " +
                            std::to_string(step) + "; the global batch has " + std::to_string(targets));
    }
  return {};
}

std::string check_results(const std::vector<Rank01>& ranks, const std::vector<double>& losses,
                          bool all_else_is_right) {
  for (std::size_t r = 1; r < ranks.size(); ++r) {
    if (!ranks[r].losses.empty()) return missing(5, rank_text(r) + " logs, too");
    if (ranks[r].saves > 0) return missing(5, rank_text(r) + " saves, too");
  }
  if (ranks[0].saves != 1)
    return missing(5, "rank 0 saved " + std::to_string(ranks[0].saves) + " times, once is right");
  if (ranks[0].losses.size() != losses.size())
    return missing(
        5, "rank 0 logged " + std::to_string(ranks[0].losses.size()) + " losses, one a step is right");
  // The logged values depend on the other points too, so they are judged last.
  for (std::size_t step = 0; all_else_is_right && step < losses.size(); ++step) {
    if (ranks[0].losses[step] == losses[step]) continue;
    return missing(5, "the loss of step " + std::to_string(step) + " is logged as " +
                          std::to_string(ranks[0].losses[step]) + "; over the global batch it is " +
                          std::to_string(losses[step]));
  }
  return {};
}

void check_world(int size) {
  const Workload workload = tiny_workload();
  World world(size);
  const std::vector<Rank01> ranks = train_world(world, workload);
  const Reference expected = reference(workload, size);
  std::string all = check_rows(ranks, workload) + check_start(ranks);
  if (size > 1) all += check_sums(world, expected.params.numel(), workload.steps);
  all += check_divisor(ranks, workload);
  all += check_results(ranks, expected.losses, all.empty());
  require(all.empty(), std::to_string(size) + " ranks: still missing" + all);
  for (std::size_t r = 0; r < ranks.size(); ++r)
    require(std::memcmp(ranks[r].end.const_data_ptr(), expected.params.const_data_ptr(),
                        expected.params.nbytes()) == 0,
            std::to_string(size) + " ranks: " + rank_text(r) +
                "'s parameters are not those of lesson 00 with virtual_ranks = " + std::to_string(size));
}

std::string check() {
  for (const int size : {1, 2, 4}) check_world(size);
  return "1, 2 and 4 ranks: losses and parameters are lesson 00's to the bit; P elements of gradient "
         "all-reduced a step";
}

}  // namespace

const Exercise kExercise{
    "convert",
    "one point at a time, in the list's order; lessons/01_data_parallel/data_parallel.cpp does all five",
    check};

}  // namespace sc::exercise
