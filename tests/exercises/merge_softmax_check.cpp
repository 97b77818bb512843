#include <algorithm>
#include <cmath>

#include "lessons/12_context_parallel/exercise/merge_softmax.h"
#include "tests/exercises/check.h"

namespace sc::exercise {
namespace {

constexpr int kKeys = 12, kWidth = 3;

/// Scores of the keys lie about `middle`, at most `spread` away from it.
struct Scores {
  double middle, spread;
  [[nodiscard]] double of(int key) const { return middle + spread * std::sin(7.3 * key); }
  [[nodiscard]] SoftmaxPart softmax(int begin, int end) const {
    double most = of(begin), sum = 0;
    for (int key = begin; key < end; ++key) most = std::max(most, of(key));
    for (int key = begin; key < end; ++key) sum += std::exp(of(key) - most);
    SoftmaxPart part{std::vector<float>(kWidth), static_cast<float>(most + std::log(sum))};
    for (int i = 0; i < kWidth; ++i) {
      double mean = 0;
      for (int key = begin; key < end; ++key) mean += std::exp(of(key) - most) / sum * std::cos(5 * key + i);
      part.out[static_cast<std::size_t>(i)] = static_cast<float>(mean);
    }
    return part;
  }
};

void require_close(float found, float wanted, const std::string& what) {
  require(std::abs(found - wanted) <= 1e-4,
          what + " is " + std::to_string(found) + " instead of " + std::to_string(wanted));
}

void check_parts(const Scores& scores, const std::vector<int>& ends) {
  SoftmaxPart sum = scores.softmax(0, ends[0]);
  for (std::size_t i = 1; i < ends.size(); ++i) sum = merged(sum, scores.softmax(ends[i - 1], ends[i]));
  const SoftmaxPart whole = scores.softmax(0, kKeys);
  const std::string where = "scores " + std::to_string(static_cast<int>(scores.middle)) + " +- " +
                            std::to_string(static_cast<int>(scores.spread)) + " in " +
                            std::to_string(ends.size()) + " parts: ";
  require_close(sum.lse, whole.lse, where + "lse");
  for (std::size_t i = 0; i < kWidth; ++i)
    require_close(sum.out[i], whole.out[i], where + "out[" + std::to_string(i) + "]");
}

std::string check() {
  for (const Scores& scores : {Scores{0, 2}, {100, 2}, {-150, 2}, {0, 200}})
    for (const std::vector<int>& ends : {std::vector<int>{5, kKeys}, {1, 2, 7, kKeys}, {kKeys - 1, kKeys}})
      check_parts(scores, ends);
  return "two and four parts are the whole softmax, for scores about 100 and -150 and from -200 to 200";
}

}  // namespace

const Exercise kExercise{"merge_softmax",
                         "subtract the larger lse before you take exponentials, and add it after the log; a "
                         "part's weight is exp(its lse - the new one)",
                         check};

}  // namespace sc::exercise
