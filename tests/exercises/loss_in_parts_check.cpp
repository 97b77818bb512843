#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "lessons/10_tensor_parallel/exercise/loss_in_parts.h"
#include "tests/exercises/check.h"
#include "tests/exercises/world.h"

namespace sc::exercise {
namespace {

constexpr std::int64_t kWidth = 8;  // columns of every rank, padding among them
constexpr double kScale = 0.125, kPadding = 500;

/// A vocabulary over some ranks, and rows of logits times `factor`, by which the ranks' maxima lie apart;
/// those of one row lie far below 0.
struct Rows {
  Rows(int of, double by) : ranks(of), factor(by) {
    const std::int64_t vocab = ranks == 1 ? 5 : std::min<std::int64_t>(3 * kWidth, ranks * kWidth) - 5;
    targets = {-1, vocab / 2};
    for (int rank = 0; rank < ranks; ++rank) {
      columns.push_back(std::clamp<std::int64_t>(vocab - rank * kWidth, 0, kWidth));
      if (columns.back() == 0) continue;
      targets.push_back(first(rank));  // the borders
      targets.push_back(first(rank) + columns.back() - 1);
    }
    targets.insert(targets.end(), {-100, vocab / 3, 0});
  }
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(targets.size()); }
  [[nodiscard]] static std::int64_t first(int rank) { return rank * kWidth; }
  [[nodiscard]] bool has(int rank, std::int64_t token) const {
    return first(rank) <= token && token < first(rank) + columns[rank];
  }
  [[nodiscard]] float logit(std::int64_t row, int rank, std::int64_t column) const {
    if (column >= columns[rank]) return kPadding;
    const auto r = static_cast<double>(row), c = static_cast<double>(first(rank) + column);
    const double apart = static_cast<double>((row + rank) % ranks), down = row == 1 ? -20 : 0;
    return static_cast<float>(factor * (3 * std::sin(12.9898 * r + 78.233 * c) + apart + down));
  }
  [[nodiscard]] std::string text() const {
    return std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks") +
           (factor == 1 ? "" : ", logits scaled by 40");
  }

  int ranks;
  double factor;
  std::vector<std::int64_t> columns, targets;  // by rank: those that are no padding; by row
};

/// The two numbers of a row from which its loss and gradient follow.
struct Statistics {
  double max = -std::numeric_limits<double>::infinity(), sum = 0;
  [[nodiscard]] double loss(double logit) const { return std::log(sum) + max - logit; }
  [[nodiscard]] double softmax(double logit) const { return std::exp(logit - max) / sum; }
};
enum class Of { all, own_rank, padding_too, unscaled };  // unscaled: sums of each rank's own

Statistics statistics(const Rows& rows, std::int64_t row, int rank, Of of) {
  Statistics s;
  if (of == Of::unscaled) {
    for (int r = 0; r < rows.ranks; ++r) s.sum += statistics(rows, row, r, Of::own_rank).sum;
    return s;
  }
  const auto each = [&](const auto& f) {
    for (int r = 0; r < rows.ranks; ++r) {
      if (of == Of::own_rank && r != rank) continue;
      const std::int64_t columns = of == Of::padding_too ? kWidth : rows.columns[r];
      for (std::int64_t column = 0; column < columns; ++column) f(double{rows.logit(row, r, column)});
    }
  };
  each([&](double logit) { s.max = std::max(s.max, logit); });
  each([&](double logit) { s.sum += std::exp(logit - s.max); });
  return s;
}

/// A wrong result that a learner may get, and its cause.
struct Mistake {
  const char* what;
  Of max, sum;
};
constexpr Mistake kUsualMistakes[] = {
    {"sums that were taken from different maxima were added: scale each by exp(its maximum - the largest)",
     Of::all, Of::unscaled},
    {"the softmax is of this rank's own tokens only", Of::own_rank, Of::own_rank},
    {"this rank's own maximum stands where the largest of all ranks belongs", Of::own_rank, Of::all},
    {"this rank's own maximum stands where the largest of all ranks belongs, and sums that were taken from "
     "different maxima were added",
     Of::own_rank, Of::unscaled},
    {"padding is in the softmax", Of::padding_too, Of::padding_too}};

bool close(double found, double wanted, double by) { return std::abs(found - wanted) <= 1e-5 * by; }

// The cause of a wrong result, if it is a usual mistake. value(statistics_of) is what the learner would have
// found with those statistics of a row.
template <class Value>
std::string cause(const Rows& rows, int rank, double found, double by, const Value& value) {
  const bool some_have_none = rows.columns.back() == 0;
  if (std::isnan(found) && some_have_none)
    return "\na rank without tokens has the maximum -inf and the sum 0: -inf - -inf and 0 / 0 are no numbers";
  if (!std::isfinite(found))
    return "\nan exponential is too large if its logit is above the maximum that was subtracted; or what was "
           "gathered was read before its wait()";
  for (const Mistake& mistake : kUsualMistakes) {
    const double would_be = value([&](std::int64_t row) {
      return Statistics{statistics(rows, row, rank, mistake.max).max,
                        statistics(rows, row, rank, mistake.sum).sum};
    });
    if (close(found, would_be, by)) return std::string("\n") + mistake.what;
  }
  return {};
}

void check_loss(const Rows& rows, int rank, const LossPart& found, const std::string& where) {
  std::int64_t own = 0;
  const auto loss_with = [&](const auto& statistics_of) {
    double sum = 0;
    for (std::int64_t row = 0; row < rows.size(); ++row) {
      const std::int64_t target = rows.targets[row];
      if (rows.has(rank, target))
        sum += statistics_of(row).loss(rows.logit(row, rank, target - Rows::first(rank)));
    }
    return sum;
  };
  for (std::int64_t row = 0; row < rows.size(); ++row) own += rows.has(rank, rows.targets[row]) ? 1 : 0;
  const std::int64_t columns = rows.columns[rank], first = Rows::first(rank);
  const std::string its = columns == 0
                              ? "it has no token"
                              : std::to_string(own) + " are among its tokens, " + std::to_string(first) +
                                    " to " + std::to_string(first + columns - 1);
  require(found.tokens == own, where + "it counts " + std::to_string(found.tokens) + " targets of " +
                                   std::to_string(rows.size()) + " rows; " + its);
  const double wanted = loss_with([&](std::int64_t row) { return statistics(rows, row, rank, Of::all); });
  const double by = std::max(1.0, std::abs(wanted));
  if (close(found.sum, wanted, by)) return;
  throw NotReached(where + "its loss is " + std::to_string(found.sum) + "; of its " + std::to_string(own) +
                   " targets it is " + std::to_string(wanted) + cause(rows, rank, found.sum, by, loss_with));
}

void check_row(const Rows& rows, int rank, std::int64_t row, const float* found, const std::string& where) {
  const std::int64_t target = rows.targets[row];
  const std::string of_row = where + "row " + std::to_string(row) +
                             (target < 0 ? ", which has no target" : ", target " + std::to_string(target)) +
                             ": ";
  bool as_it_was = true;
  for (std::int64_t column = 0; column < kWidth; ++column)
    as_it_was = as_it_was && found[column] == rows.logit(row, rank, column);
  require(!as_it_was, of_row + "its logits are as they were; their gradient belongs there");
  for (std::int64_t column = 0; column < kWidth; ++column) {
    const std::int64_t token = Rows::first(rank) + column;
    const auto gradient_with = [&](const auto& statistics_of) {
      const double softmax = statistics_of(row).softmax(rows.logit(row, rank, column));
      return kScale * (softmax - (token == target ? 1 : 0));
    };
    const std::string is = " is " + std::to_string(found[column]) + " instead of ";
    if (column >= rows.columns[rank]) {
      require(found[column] == 0,
              of_row + "the gradient of column " + std::to_string(column) + ", which is padding," + is + "0");
    } else if (target < 0) {
      require(found[column] == 0, of_row + "the gradient of token " + std::to_string(token) + is + "0");
    } else {
      const double wanted = gradient_with([&](std::int64_t r) { return statistics(rows, r, rank, Of::all); });
      if (close(found[column], wanted, kScale)) continue;
      throw NotReached(of_row + "the gradient of token " + std::to_string(token) + is +
                       std::to_string(wanted) + cause(rows, rank, found[column], kScale, gradient_with));
    }
  }
}

void check_messages(const CommPlan& issued, const Rows& rows, const std::string& where) {
  std::int64_t gathers = 0;
  for (const auto& [op, count] : issued.count) {
    require(op.kind == CommKind::all_gather, where + "an " + describe(op) + "; one all_gather is enough");
    gathers += count;
  }
  require(gathers == 1,
          where + std::to_string(gathers) + " all_gathers; it takes one, of both numbers of every row");
  const Operation& gather = issued.count.begin()->first;
  const std::int64_t sent = gather.elements.value() / rows.ranks, needed = 2 * rows.size();
  require(sent <= needed, where + "right, but it gathers " + std::to_string(sent) +
                              " numbers of each rank; " + std::to_string(needed) +
                              " are enough, two per row");
  require(gather.dtype == DType::f32,
          where + "right, but it gathers " + std::string(name_of(gather.dtype)) + "; f32 is enough");
}

VocabPart part_of(const Rows& rows, int rank) {
  VocabPart part{at::empty({rows.size(), kWidth}, at::kFloat), rows.columns[rank], Rows::first(rank)};
  auto* logits = part.logits.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < rows.size() * kWidth; ++i)
    logits[i] = rows.logit(i / kWidth, rank, i % kWidth);
  return part;
}

void check_rows(const Rows& rows, bool delays) {
  World world(rows.ranks, delays);
  const auto found = world.each([&](RecordingCommunicator& comm) {
    at::Tensor targets = at::empty({rows.size()}, at::kLong);
    for (std::int64_t row = 0; row < rows.size(); ++row)
      targets.mutable_data_ptr<std::int64_t>()[row] = rows.targets[row];
    VocabPart part = part_of(rows, static_cast<int>(comm.rank()));
    const at::Tensor gradients = part.logits;
    return std::pair(gradients, loss_in_parts(part, targets, kScale, comm));
  });
  for (int r = 0; r < rows.ranks; ++r) {
    const auto& [gradients, loss] = found[static_cast<std::size_t>(r)];
    const std::string where =
        rows.text() + (delays ? ", with random delays" : "") + ", rank " + std::to_string(r) + ": ";
    check_loss(rows, r, loss, where);
    for (std::int64_t row = 0; row < rows.size(); ++row)
      check_row(rows, r, row, gradients.const_data_ptr<float>() + row * kWidth, where);
    if (rows.ranks > 1) check_messages(world.issued(r), rows, where);
  }
}

std::string check() {
  for (const int ranks : {2, 3, 4, 1})
    for (const double factor : {1, 40}) check_rows({ranks, factor}, false);
  for (int turn = 0; turn < 3; ++turn) check_rows({4, 40}, true);
  return "1 to 4 ranks, one of them without a token: the whole softmax's loss and gradient, also of logits "
         "scaled by "
         "40, for one all_gather of two numbers per row and rank";
}

}  // namespace

const Exercise kExercise{"loss_in_parts",
                         "with m the maximum of a rank's own logits, s the sum of exp(logit - m) and M "
                         "the largest m of all ranks, the whole "
                         "sum is that of s exp(m - M); a rank without tokens has m = -inf and s = 0",
                         check};

}  // namespace sc::exercise
