#include "common/data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "common/config/workload_table.h"
#include "tests/storage/temp_dir.h"
#include "tests/support/answers.h"

namespace sc {
namespace {

using test::input_error;

TEST(Permutation, IsOneForEveryCount) {
  for (std::int64_t count = 1; count <= 200; ++count) {
    const Permutation permutation(count, static_cast<std::uint64_t>(count) * 77);
    std::set<std::int64_t> seen;
    for (std::int64_t i = 0; i < count; ++i) seen.insert(permutation.value(i));
    EXPECT_EQ(static_cast<std::int64_t>(seen.size()), count);
    EXPECT_EQ(*seen.begin(), 0);
    EXPECT_EQ(*seen.rbegin(), count - 1);
  }
}

// The order is part of what a record means, so it must not change between versions or machines.
// golden/permutation.py made the values.
TEST(Permutation, IsTheSameForEver) {
  const auto order = [](std::int64_t count, std::uint64_t key) {
    std::vector<std::int64_t> out;
    for (std::int64_t i = 0; i < count; ++i) out.push_back(Permutation(count, key).value(i));
    return out;
  };
  EXPECT_EQ(order(10, 1), (std::vector<std::int64_t>{7, 6, 2, 5, 3, 9, 0, 1, 8, 4}));
  EXPECT_EQ(order(16, ~std::uint64_t{0}),
            (std::vector<std::int64_t>{15, 10, 13, 0, 8, 4, 2, 7, 6, 3, 1, 12, 9, 5, 11, 14}));
}

// Counts in 16 bins where the first 1/16 of the positions goes: chi-square with 15 degrees of freedom is
// below 44.3 with probability 0.9999.
TEST(Permutation, SpreadsNeighbours) {
  constexpr std::int64_t kCount = 16000, kBins = 16;
  for (const std::uint64_t key : {0U, 1U, 2U, 3U}) {
    const Permutation permutation(kCount, key);
    std::vector<double> bins(kBins);
    for (std::int64_t i = 0; i < kCount / kBins; ++i) {
      bins[static_cast<std::size_t>(permutation.value(i) * kBins / kCount)] += 1;
    }
    const double expected = static_cast<double>(kCount) / kBins / kBins;
    double chi_square = 0;
    for (const double bin : bins) chi_square += (bin - expected) * (bin - expected) / expected;
    EXPECT_LT(chi_square, 44.3) << "key " << key;
  }
}

/// Data of `rows` packed rows of 2 tokens whose first token is the row's number.
class SamplerTest : public test::InTempDir {
 protected:
  void make(std::int64_t rows, std::int64_t global, std::int64_t micro, double validation = 0) {
    std::vector<TokenId> tokens;
    for (std::int64_t i = 0; i <= 2 * rows; ++i) tokens.push_back(static_cast<TokenId>(i / 2));
    write_token_file(*ops_, dir_ / "a.bin", tokens);
    workload_.model.vocab = 65536;
    workload_.batch = {.sequence = 2, .global = global, .micro = micro};
    workload_.data.source = (dir_ / "a.bin").string();
    workload_.data.validation_fraction = validation;
    workload_.data.validation_rows = 6;
    data_.reset();
    data_.emplace(Dataset::open(*ops_, workload_, dir_ / "cache"));
  }
  [[nodiscard]] Sampler sampler() const { return {*data_, workload_}; }
  /// The first tokens of the rows with targets that an evaluation reads, with two micro-batches more than
  /// there are.
  [[nodiscard]] std::vector<std::int64_t> evaluated() const {
    const Sampler one = sampler();
    std::vector<std::int64_t> found;
    for (std::int64_t i = 0; i < one.validation_micro_batches() + 2; ++i) {
      std::vector<std::int64_t> tokens(static_cast<std::size_t>(2 * workload_.batch.micro), 777),
          targets = tokens;
      one.fill_validation(i, tokens, targets);
      for (std::size_t row = 0; row < tokens.size(); row += 2)
        if (targets[row] >= 0) found.push_back(tokens[row]);
    }
    return found;
  }

  Workload workload_;
  std::optional<Dataset> data_;
};

/// The rows of a step in the order of its micro-batches.
std::vector<RowIndex> step_rows(const Sampler& sampler, std::int64_t step) {
  std::vector<RowIndex> all;
  for (std::int64_t j = 0; j < sampler.micro_batches(); ++j) {
    const auto rows = sampler.rows(step, j);
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

TEST_F(SamplerTest, EveryRowComesOnceAnEpochInAnotherOrderEachTime) {
  make(17, 6, 2);  // 6 does not divide 17: epochs end inside steps
  std::vector<RowIndex> sequence;
  for (std::int64_t step = 0; step < 17; ++step) {
    const auto rows = step_rows(sampler(), step);
    sequence.insert(sequence.end(), rows.begin(), rows.end());
  }
  ASSERT_EQ(sequence.size(), 6U * 17U);
  std::set<std::vector<RowIndex>> orders;
  for (std::size_t epoch = 0; epoch < 6; ++epoch) {
    std::vector<RowIndex> rows(sequence.begin() + static_cast<std::ptrdiff_t>(17 * epoch),
                               sequence.begin() + static_cast<std::ptrdiff_t>(17 * (epoch + 1)));
    orders.insert(rows);
    std::sort(rows.begin(), rows.end());
    std::vector<RowIndex> each(17);
    std::iota(each.begin(), each.end(), 0);
    EXPECT_EQ(rows, each) << "epoch " << epoch;
  }
  EXPECT_EQ(orders.size(), 6U);
  EXPECT_DOUBLE_EQ(sampler().steps_per_epoch(), 17.0 / 6.0);
}

TEST_F(SamplerTest, ADataSetSmallerThanTheBatchRepeatsWithinAStep) {
  make(2, 6, 3);
  const auto rows = step_rows(sampler(), 5);
  EXPECT_EQ(std::count(rows.begin(), rows.end(), 0), 3);
  EXPECT_EQ(std::count(rows.begin(), rows.end(), 1), 3);
}

// A run that another one continues begins at a position, not at a step: whatever the batches were, no row is
// left out or comes twice. With 17 rows epochs end inside steps, and inside the runs.
TEST_F(SamplerTest, RunsWithOtherBatchesGoOnWhereTheLastOneEnded) {
  make(17, 1, 1);
  std::vector<RowIndex> whole, chain;
  for (std::int64_t step = 0; step < 3 * (12 + 6 + 24 + 12); ++step)
    whole.push_back(sampler().rows(step, 0)[0]);
  RowStart start;
  for (const std::int64_t global : {12, 6, 24, 12}) {
    workload_.batch = {.sequence = 2, .global = global, .micro = global / 3};
    const Sampler run(*data_, workload_, start);
    for (std::int64_t step = start.step; step < start.step + 3; ++step) {
      const auto rows = step_rows(run, step);
      EXPECT_EQ(run.step_targets(step), 2 * global);
      chain.insert(chain.end(), rows.begin(), rows.end());
    }
    EXPECT_EQ(run.position(start.step), start.row);
    start = {.step = start.step + 3, .row = run.position(start.step + 3)};
  }
  EXPECT_EQ(start.row, static_cast<std::int64_t>(whole.size()));
  EXPECT_EQ(chain, whole);
}

// row_order() must tell which keys make other rows, or another order, as the rows themselves do.
TEST_F(SamplerTest, RowOrderDiffersWhereTheRowsDo) {
  make(100, 6, 2);
  const auto rows_of = [&](const Workload& workload) {
    const Dataset data = Dataset::open(*ops_, workload, dir_ / "cache");
    const Sampler sampler(data, workload);
    std::vector<std::int64_t> all;
    const auto count = static_cast<std::size_t>(workload.batch.micro * workload.batch.sequence);
    std::vector<std::int64_t> tokens(count), targets(count);
    for (std::int64_t row = 0; row < 120; row += workload.batch.micro) {
      const std::int64_t step = row / workload.batch.global,
                         j = row % workload.batch.global / workload.batch.micro;
      sampler.fill(step, j, tokens, targets);
      all.insert(all.end(), tokens.begin(), tokens.end());
      all.insert(all.end(), targets.begin(), targets.end());
    }
    return all;
  };
  // For each key a value that differs from the default and that this file takes.
  const std::map<std::string, std::string> other = {{"data.packing", "pad_masked"},
                                                    {"data.tokenizer", "gpt2"},
                                                    {"data.validation_fraction", "0.3"},
                                                    {"data.validation_rows", "1"},
                                                    {"batch.sequence", "3"},
                                                    {"batch.global", "12"},
                                                    {"batch.micro", "3"},
                                                    {"optim.schedule", "linear"},
                                                    {"optim.nonfinite", "skip"},
                                                    {"precision.dtype", "bf16"},
                                                    {"precision.grad_dtype", "fp32"},
                                                    {"precision.reduce_dtype", "fp32"},
                                                    {"activations", "recompute"},
                                                    {"model.tied", "off"}};
  const std::int64_t tokens = data_->num_tokens();
  Workload probe = workload_;
  std::set<std::string> differing;
  const FieldSet fields = workload_fields().bind(probe);
  for (const Field& field : fields.fields()) {
    if (field.path == "data.source") continue;  // a file is known by its content
    Workload changed = workload_;
    const auto found = other.find(field.path);
    std::string value = found == other.end() ? "" : found->second;
    if (value.empty()) value = field.type == "integer" ? std::to_string(std::stoll(field.get()) + 1) : "0.5";
    if (field.path == "model.vocab") value = "60000";
    workload_fields().bind(changed).set(field.path, {Value::Form::flag, value}, field.path);
    const bool same = row_order(changed, tokens) == row_order(workload_, tokens);
    // Rows of another length, or of batches that are cut differently, are compared as one stream of numbers.
    if (field.path != "batch.micro" && field.path != "batch.global") {
      EXPECT_EQ(same, rows_of(changed) == rows_of(workload_)) << field.path;
    }
    if (!same) differing.insert(field.path);
  }
  EXPECT_EQ(differing,
            (std::set<std::string>{"batch.sequence", "data.packing", "data.validation_fraction", "seed"}));
  workload_.data.packing = Packing::pad_masked;  // where documents end, the tokenizer says
  Workload gpt2 = workload_;
  gpt2.data.tokenizer = "gpt2";
  EXPECT_NE(row_order(gpt2, tokens), row_order(workload_, tokens));
}

TEST_F(SamplerTest, OnlySeedStepAndMicroBatchDecide) {
  make(50, 12, 2);
  const auto reference = sampler().rows(7, 3);
  EXPECT_EQ(sampler().rows(7, 3), reference);  // no state
  const Sampler used = sampler();
  for (std::int64_t step = 0; step < 20; ++step) (void)used.rows(step, 0);
  EXPECT_EQ(used.rows(7, 3), reference);  // no history
  workload_.seed = 2;
  EXPECT_NE(step_rows(sampler(), 7), step_rows(used, 7));
}

TEST_F(SamplerTest, TheMicroBatchSizeDoesNotChangeAStepsRows) {
  make(50, 12, 1);
  const auto reference = step_rows(sampler(), 3);
  for (const std::int64_t micro : {2, 3, 4, 6, 12}) {
    workload_.batch.micro = micro;
    EXPECT_EQ(step_rows(sampler(), 3), reference) << micro;
  }
}

TEST_F(SamplerTest, RanksInOrderAreWorldOne) {
  make(50, 12, 1);
  const Sampler one = sampler();
  for (const std::int64_t ranks : {1, 2, 3, 4, 6, 12}) {
    std::vector<RowIndex> joined;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const MicroBatchRun run = micro_batch_run(one.micro_batches(), rank, ranks);
      EXPECT_EQ(run.size, 12 / ranks);
      for (std::int64_t j = run.begin; j < run.begin + run.size; ++j) joined.push_back(one.rows(9, j)[0]);
    }
    EXPECT_EQ(joined, step_rows(one, 9)) << ranks << " ranks";
  }
}

TEST_F(SamplerTest, FillsTheTokensOfItsRows) {
  make(50, 12, 3);
  const Sampler one = sampler();
  std::vector<std::int64_t> tokens(6), targets(6);
  one.fill(4, 2, tokens, targets);
  const auto rows = one.rows(4, 2);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(tokens[2 * i], rows[i]);
    EXPECT_EQ(tokens[2 * i + 1], rows[i]);
    EXPECT_EQ(targets[2 * i], rows[i]);
    EXPECT_EQ(targets[2 * i + 1], rows[i] + 1);
  }
  EXPECT_EQ(one.step_targets(4), 24);
}

TEST_F(SamplerTest, MaskedTargetsAreCountedPerStep) {
  std::vector<TokenId> tokens;
  for (const int length : {1, 2, 3, 4, 9}) {
    tokens.insert(tokens.end(), static_cast<std::size_t>(length), 7);
    tokens.push_back(ByteTokenizer::kEndOfText);
  }
  make(2, 5, 1);
  write_token_file(*ops_, dir_ / "a.bin", tokens);
  workload_.batch.sequence = 4;
  workload_.data.packing = Packing::pad_masked;
  data_.emplace(Dataset::open(*ops_, workload_, dir_ / "cache"));
  const Sampler one = sampler();
  EXPECT_EQ(one.step_targets(0), 1 + 2 + 3 + 4 + 4);  // five documents, a whole epoch
  workload_.batch.global = 3;
  const Sampler some = sampler();
  for (std::int64_t step = 0; step < 5; ++step) {
    std::int64_t counted = 0;
    std::vector<std::int64_t> inputs(4), targets(4);
    for (std::int64_t j = 0; j < 3; ++j) {
      some.fill(step, j, inputs, targets);
      counted += std::count_if(targets.begin(), targets.end(), [](auto target) { return target >= 0; });
    }
    EXPECT_EQ(some.step_targets(step), counted) << "step " << step;
  }
}

TEST_F(SamplerTest, EvaluationRowsAreFixedDistinctAndSpread) {
  make(100, 4, 2, 0.2);  // 40 of 201 tokens: 19 rows
  ASSERT_EQ(data_->validation().count(), 19);
  // Token i of the file is i / 2, and the validation part begins at token 161: its rows 0, 3, 6, 9, 12, 15.
  EXPECT_EQ(evaluated(), (std::vector<std::int64_t>{80, 83, 86, 89, 92, 95}));
  workload_.seed = 99;
  EXPECT_EQ(evaluated(), (std::vector<std::int64_t>{80, 83, 86, 89, 92, 95}));
}

TEST_F(SamplerTest, RowsOfAnEvaluationDoNotDependOnTheMicroBatch) {
  for (const std::int64_t micro : {1, 2, 3, 4, 5, 6, 7, 12}) {
    make(100, 12 * micro, micro, 0.2);
    EXPECT_EQ(evaluated(), (std::vector<std::int64_t>{80, 83, 86, 89, 92, 95})) << "micro " << micro;
    EXPECT_EQ(sampler().validation_micro_batches(), (6 + micro - 1) / micro) << "micro " << micro;
  }
}

TEST_F(SamplerTest, SurplusEvaluationMicroBatchesHaveNoTargets) {
  make(100, 4, 2, 0.2);
  std::vector<std::int64_t> tokens(4, 777), targets(4, 777);
  sampler().fill_validation(3, tokens, targets);
  EXPECT_EQ(tokens, (std::vector<std::int64_t>(4, 0)));
  EXPECT_EQ(targets, (std::vector<std::int64_t>(4, -1)));
  const MicroBatchRun last = micro_batch_run(3, 1, 2);
  EXPECT_EQ(last.begin, 2);
  EXPECT_EQ(last.size, 2);
}

TEST_F(SamplerTest, WithoutAValidationPartThereIsNoEvaluation) {
  make(10, 4, 2);
  test::expect_counts({{sampler().validation_rows(), 0},
                       {sampler().validation_micro_batches(), 0},
                       {sampler().evaluated_at_once(), 3}});
}

TEST_F(SamplerTest, AGlobalBatchThatIsNotWholeIsRefused) {
  make(10, 4, 2);
  workload_.batch.global = 5;
  EXPECT_EQ(input_error([&] { (void)sampler(); }),
            "64|batch.global: 5 rows are not a whole number of micro-batches of 2|--set batch.global=6");
}

}  // namespace
}  // namespace sc
