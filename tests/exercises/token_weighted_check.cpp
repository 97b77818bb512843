#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>

#include "lessons/00_one_device/exercise/token_weighted.h"
#include "tests/exercises/check.h"
#include "tests/exercises/tiny_data.h"

namespace sc::exercise {
namespace {

constexpr std::uint64_t kSeed = 3;

// The limit for max |a - b| / max |b|. The big batch adds a gradient's terms, at most 4 x 11 of them, in
// another order: each addition rounds by 2^-24 of at most the sum, and a few more sums of that kind lie
// between it and the loss. 1e-5 is more than a hundred roundings.
constexpr double kTolerance = 1e-5;
double difference(const at::Tensor& a, const at::Tensor& b) {
  const auto *x = a.const_data_ptr<float>(), *y = b.const_data_ptr<float>();
  double most = 0, size = 0;
  for (std::int64_t i = 0; i < b.numel(); ++i) {
    if (std::isnan(x[i])) return x[i];
    most = std::max(most, std::abs(static_cast<double>(x[i]) - y[i]));
    size = std::max(size, std::abs(static_cast<double>(y[i])));
  }
  return most / size;
}
bool near(double difference) { return difference < kTolerance; }  // NaN is not

/// All rows of a step as one micro-batch: one forward and backward, nothing to accumulate.
struct BigBatch {
  explicit BigBatch(std::int64_t step) : model(workload(), WorldSize{1}) {
    const Batch batch = tiny_batch(workload(), step, 0);
    model.init(kSeed);
    targets = count_targets(batch);
    model.forward_backward(batch, 1.0 / static_cast<double>(targets), Write::overwrite);
    loss = model.sums().const_data_ptr<double>()[0] / static_cast<double>(targets);
  }
  static Workload workload() {
    Workload w = tiny_workload();
    w.batch.micro = w.batch.global;
    return w;
  }
  TinyGpt model;
  std::int64_t targets = 0;
  double loss = 0;
};

std::vector<Batch> micro_batches(std::int64_t step) {
  const Workload w = tiny_workload();
  std::vector<Batch> batches;
  for (std::int64_t j = 0; j < w.batch.global; ++j) batches.push_back(tiny_batch(w, step, j));
  return batches;
}

// The gradient that many training loops compute instead, to recognise this mistake.
at::Tensor mean_of_means(const std::vector<Batch>& batches) {
  TinyGpt model(tiny_workload(), WorldSize{1});
  model.init(kSeed);
  model.grads().zero_();
  for (const Batch& batch : batches) {
    const double targets = static_cast<double>(std::max<std::int64_t>(1, count_targets(batch)));
    model.forward_backward(batch, 1.0 / (targets * static_cast<double>(batches.size())), Write::accumulate);
  }
  return model.grads().clone();
}

void check_step(TinyGpt& model, std::int64_t step) {
  const std::string where = "step " + std::to_string(step) + ": ";
  BigBatch big(step);
  const std::vector<Batch> batches = micro_batches(step);
  std::size_t passes = 0;
  model.observe({.forward = [&](const Batch&, double) { ++passes; }, .update = [] {}});
  const double loss = accumulate(model, batches);
  require(!near(difference(model.grads(), mean_of_means(batches))),
          where + "the gradient is that of the mean of the micro-batches' means");
  const double apart = difference(model.grads(), big.model.grads());
  require(near(apart), where + "the gradient differs from that of one big batch by " + std::to_string(apart) +
                           " of its largest element");
  require(
      std::abs(loss - big.loss) < kTolerance * big.loss,
      where + "the loss is " + std::to_string(loss) + ", that of one big batch " + std::to_string(big.loss));
  require(passes == batches.size(), where + std::to_string(passes) + " forward and backward passes, " +
                                        std::to_string(batches.size()) + " are needed");
}

std::string check() {
  const c10::InferenceMode inference;
  at::set_num_threads(1);
  TinyGpt model(tiny_workload(), WorldSize{1});
  model.init(kSeed);
  for (const std::int64_t step : {0, 1, 2})
    check_step(model, step);  // grads() and sums() hold the last step's
  return "3 steps of 4 unequal micro-batches: the gradient and the loss of one big batch, one pass a "
         "micro-batch";
}

}  // namespace

const Exercise kExercise{"token_weighted",
                         "the gradient of a sum is a sum of gradients: divide each by the same number, "
                         "the targets of the whole step",
                         check};

}  // namespace sc::exercise
