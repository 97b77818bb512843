#include "common/records/compare.h"

#include <gtest/gtest.h>

#include <limits>

#include "common/storage/atomic_dir.h"
#include "tests/storage/temp_dir.h"
#include "tests/support/answers.h"

namespace sc {
namespace {

using test::Answers;
using test::input_error;
using test::TempDir;

RunRecord some_run(const std::string& lesson, std::int64_t gradients, double seconds, double loss) {
  RunRecord r;
  r.lesson = lesson;
  r.workload = {{"batch.micro", "1"}, {"model.layers", "4"}};
  r.workload_hash = "abc";
  r.world = 2;
  r.comm = "mpi";
  RankRecord rank;
  rank.predicted_bytes.of.at(Purpose::parameters) = Bytes(4000);
  rank.predicted_bytes.of.at(Purpose::gradients) = Bytes(gradients);
  rank.predicted_bytes.total = Bytes(4000 + gradients);
  rank.measured_bytes = rank.predicted_bytes;
  rank.measured_operations.emplace();
  r.ranks = {rank, rank};
  for (int i = 0; i < 25; ++i) r.steps.push_back({i, loss - i / 10.0, 1e-3, 1, 100, seconds, seconds / 4});
  r.validation_loss = loss;
  r.exit_code = 0;
  return r;
}

RunRecord reduced(RunRecord r, CommKind kind, std::int64_t times) {
  for (RankRecord& rank : r.ranks)
    rank.measured_operations->add({kind, DType::f32, Elements(1000), WorldSize{r.world}}, times);
  return r;
}

/// The words of the line of `text` that begins with `first`, joined by single spaces.
std::string line_of(const std::string& text, const std::string& first) {
  const std::size_t at = text.find("\n  " + first);
  if (at == std::string::npos) return "no line " + first + " in\n" + text;
  std::string line = text.substr(at + 3, text.find('\n', at + 1) - at - 3), words;
  for (const char c : line)
    if (c != ' ' || words.back() != ' ') words += c;
  return words;
}

/// Expects that the lines of `text` with these beginnings have these words.
void expect_lines(const std::string& text, const Answers& lines) {
  test::expect_answers([&](const std::string& first) { return line_of(text, first); }, lines);
}

// Operations are compared without their purpose and unit, so an older record that lacks these has the same
// rows.
TEST(Compare, OperationsWithoutNamesAreTheSameRows) {
  RunRecord run = some_run("01_data_parallel", 4000, 0.02, 5), old = reduced(run, CommKind::all_reduce, 3);
  for (RankRecord& rank : run.ranks) {
    for (int unit = 0; unit < 3; ++unit)
      rank.measured_operations->add({CommKind::all_reduce, DType::f32, Elements(1000), WorldSize{2}},
                                    {OpPurpose::gradients, unit});
  }
  EXPECT_EQ(format_comparison(run, {"there", old}), format_comparison(old, {"there", old}));
}

// A step whose loss is NaN or infinite differs more than every finite one, and is the difference shown.
TEST(Compare, ALossThatIsNotFiniteIsShown) {
  RunRecord run = reduced(some_run("01_data_parallel", 4000, 0.02, 5), CommKind::all_reduce, 3);
  const OtherRun other{"there", run};
  run.steps[7].loss = std::numeric_limits<double>::quiet_NaN();
  run.validation_loss = std::numeric_limits<double>::quiet_NaN();
  expect_lines(format_comparison(run, other), {{"step 7", "step 7, where it is largest 4.300000 nan nan"},
                                               {"validation", "validation 5.000000 nan nan"}});
}

TEST(Compare, EveryQuantityBesideTheOtherRun) {
  const OtherRun other{"r.json",
                       reduced(some_run("01_data_parallel", 4000, 0.02, 5), CommKind::all_reduce, 3)};
  RunRecord run = some_run("03_zero2", 1000, 0.03, 5);
  run = reduced(reduced(run, CommKind::reduce_scatter, 3), CommKind::all_gather, 3);
  run.steps[7].loss += 0.5;
  const std::string text = "\n" + format_comparison(run, other);
  EXPECT_NE(text.find("compared with r.json\n"), std::string::npos);
  EXPECT_EQ(text.find("no difference"), std::string::npos) << text;
  EXPECT_NE(line_of(text, "times of two runs").find("docs/measuring.md"), std::string::npos);
  expect_lines(text, {{"peak bytes", "peak bytes of rank 0 01_data_parallel -n 2 03_zero2 -n 2"},
                      {"parameters", "parameters 4,000 4,000 x 1.000"},
                      {"gradients", "gradients 4,000 1,000 x 0.250"},
                      {"all_reduce", "all_reduce 3 12,000 0 0"},
                      {"reduce_scatter", "reduce_scatter 0 0 3 6,000"},
                      {"all_gather", "all_gather 0 0 3 6,000"},
                      {"median step", "median step 20.00 ms 30.00 ms x 1.500"},
                      {"p10 to p90", "p10 to p90 20.00 to 20.00 30.00 to 30.00"},
                      {"tokens a second", "tokens a second 5000 3333 x 0.667"},
                      {"waiting", "waiting for communication 25.0 % 25.0 %"},
                      {"step 7", "step 7, where it is largest 4.300000 4.800000 5.00e-01"},
                      {"step 24", "step 24 2.600000 2.600000 0.00e+00"},
                      {"validation", "validation 5.000000 5.000000 0.00e+00"}});
}

TEST(Compare, NamesOtherInitialWeightsAndLeavesOutLossesOfOtherTexts) {
  const FileRecord medium{"medium.safetensors", 100, "00000000000000aa"};
  OtherRun other{"r.json", some_run("01_data_parallel", 4000, 0.02, 5)};
  RunRecord run = some_run("02_zero1", 4000, 0.02, 5);
  other.record.init = run.init = medium;
  run.init->file = "a copy of it";
  EXPECT_EQ(format_comparison(run, other).find("compared with r.json\n"), 0U);
  run.init.reset();
  EXPECT_EQ(
      format_comparison(run, other)
          .find("compared with r.json; --init medium.safetensors (sum 00000000000000aa) there, none here\n"),
      0U);

  other.record.validation = FileRecord{"v.txt", 100, "00000000000000bb"};
  run.validation = FileRecord{"v.txt", 100, "00000000000000cc"};
  expect_lines("\n" + format_comparison(run, other),
               {{"validation",
                 "validation losses are of other texts: --validation v.txt (sum 00000000000000bb) there, "
                 "v.txt (sum 00000000000000cc) here"},
                {"step 24", "step 24 2.600000 2.600000 0.00e+00"}});
  run.validation->sum = "00000000000000bb";
  EXPECT_EQ(line_of("\n" + format_comparison(run, other), "validation"),
            "validation 5.000000 5.000000 0.00e+00");
}

TEST(Compare, SaysWhereStepsOfOneRunDifferAsMuchAsTheRunsDo) {
  OtherRun other{"r.json", some_run("01_data_parallel", 4000, 0.02, 5)};
  const auto text = [&](double seconds) {
    RunRecord run = some_run("02_zero1", 4000, seconds, 5);
    for (std::size_t i = 0; i < run.steps.size(); i += 4) run.steps[i].seconds = 0.0205;
    return "\n" + format_comparison(run, other);
  };
  const std::string said = "no difference can be seen: the two runs' steps overlap, p10 to p90";
  EXPECT_EQ(line_of(text(0.02), "no difference"), said);
  EXPECT_EQ(line_of(text(0.025), "no difference").find(said), std::string::npos)
      << "20.5 is above all of the other's";
  for (std::size_t i = 0; i < other.record.steps.size(); i += 4) other.record.steps[i].seconds = 0.021;
  EXPECT_EQ(line_of(text(0.025), "no difference"), said);
}

TEST(Compare, ShortRunsAreNoMeasurement) {
  OtherRun other{"r.json", some_run("01_data_parallel", 4000, 0.02, 5)};
  other.record.steps.resize(24);
  other.record.ranks[0].measured_bytes.reset();
  other.record.ranks[0].measured_operations.reset();
  const std::string text = "\n" + format_comparison(some_run("02_zero1", 4000, 0.02, 5), other);
  EXPECT_NE(text.find("01_data_parallel -n 2 (predicted)"), std::string::npos) << text;
  expect_lines(
      text, {{"times are", "times are compared from 25 steps on; 01_data_parallel has 24, 02_zero1 has 25"},
             {"step 23", "step 23 2.700000 2.700000 0.00e+00"}});
}

TEST(Compare, RefusesOtherWorkAndRunsWithoutAnEnd) {
  TempDir dir;
  const std::unique_ptr<FileOps> ops = posix_file_ops();
  const std::string path = (dir / "record.json").string();
  RunRecord record = some_run("01_data_parallel", 4000, 0.02, 5);
  write_record(*ops, dir.path(), record);
  EXPECT_EQ(read_other_run(*ops, path, record.workload).record.lesson, "01_data_parallel");
  const auto refused = [&](const std::map<std::string, std::string>& workload) {
    return input_error([&] { (void)read_other_run(*ops, path, workload); }, dir.path().string());
  };
  EXPECT_EQ(refused({{"batch.micro", "2"}, {"model.layers", "4"}}),
            "64|--compare DIR/record.json: it did other work: batch.micro is 2 here and 1 there|runs are "
            "compared that train the same; --set the keys, or use that run's --workload");
  // A record from when evaluations were counted in micro-batches compares with a record that counts rows.
  std::map<std::string, std::string> today = record.workload;
  today["data.validation_rows"] = "4";
  record.workload["data.validation_batches"] = "4";
  write_record(*ops, dir.path(), record);
  EXPECT_EQ(read_other_run(*ops, path, today).record.lesson, "01_data_parallel");
  record.exit_code = 75;
  write_record(*ops, dir.path(), record);
  EXPECT_EQ(refused(record.workload),
            "65|--compare DIR/record.json: that run came to no end|the record of a run that ended well");
  atomic_write_file(*ops, dir / "record.json", "{\"loss\": 3}");
  EXPECT_EQ(refused(record.workload).substr(0, 2), "65");
}

}  // namespace
}  // namespace sc
