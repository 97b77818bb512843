#include "common/records/record.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "common/storage/atomic_dir.h"
#include "tests/storage/temp_dir.h"
#include "tests/support/answers.h"
#include "tests/support/bad_json.h"
#include "tests/support/json_values.h"

namespace sc {
namespace {

using test::bad_json;
using test::BadJson;
using test::expect_refused;
using test::expect_values;
using test::input_error;
using test::repeated;
using test::TempDir;

CommPlan operations_of_all_kinds() {
  CommPlan plan;
  plan.add({CommKind::all_reduce, DType::f32, Elements(250'000), WorldSize{2}}, 4);
  plan.add({CommKind::all_reduce, DType::f64, Elements(4), WorldSize{2}});
  plan.add({CommKind::barrier, DType::u8, Elements(1), WorldSize{2}});
  plan.add({CommKind::reduce_scatter, DType::bf16, Elements(64), WorldSize{1}}, 3);  // of a part of the world
  plan.add({CommKind::all_gather, DType::bf16, Elements(64), WorldSize{2}}, {OpPurpose::parameters, 0});
  plan.add({CommKind::all_gather, DType::bf16, Elements(64), WorldSize{2}, 3, OpPurpose::hashes}, 2);
  return plan;
}

RankRecord some_rank(int rank) {
  RankRecord r;
  r.rank = Rank{rank};
  r.host = "host";
  r.cpu = "a processor";
  r.cores = 2;
  r.memory = Bytes(std::int64_t{24} << 30);
  r.predicted_bytes.of.at(Purpose::gradients) = Bytes(4'000'000);
  r.predicted_bytes.of.at(Purpose::gradients, Place::pinned) = Bytes(7);
  r.predicted_bytes.of.at(Purpose::momentum, Place::disk) = Bytes(5);
  r.predicted_bytes.total = Bytes(4'000'000);
  r.predicted_operations = operations_of_all_kinds();
  r.measured_bytes = r.predicted_bytes;
  r.measured_operations = r.predicted_operations;
  return r;
}

RunRecord some_record() {
  RunRecord r;
  r.lesson = "01_data_parallel";
  r.commit = "0123456789ab-dirty";
  r.command = "run.sh --set bucket=\"tensor\"\n";
  r.started = "2025-01-31T12:00:00Z";
  r.workload = {{"model.layers", "4"}, {"optim.lr", "0.001"}};
  r.workload_hash = "abc";
  r.strategy = {{"bucket", "tensor"}};
  r.comm = "mpi";
  r.world = 2;
  r.threads = 1;
  r.versions = {{"LibTorch", "2.11.0"}};
  r.flops =
      ModelFlops{.parameters = 124'000'000, .a_token = 8e8, .gpus = 2, .peak = 1e12, .peak_of = "a GPU"};
  r.ranks = {some_rank(0), some_rank(1)};
  for (int i = 0; i < 30; ++i) r.steps.push_back({i, 5.5 - i / 3.0, 1e-3, 0.1 * i, 3072, 0.05, 0.01});
  r.validation_loss = 2.25;
  r.init = {"w.safetensors", 1000, "00000000000000aa"};
  r.validation = {"v.txt", 2000, "00000000000000bb"};
  r.seconds = 12.5;
  r.steps[4].skipped = r.steps[5].skipped = r.steps[9].skipped = true;
  r.exit_code = 0;
  return r;
}

class Record : public ::testing::Test {
 protected:
  TempDir dir;
  std::unique_ptr<FileOps> ops = posix_file_ops();
  Path file = dir / "record.json";
  std::string written(const RunRecord& r) {
    write_record(*ops, dir.path(), r);
    return read_file(*ops, file);
  }
  /// The error with which read_record() refuses the file `name`.
  std::string refusal(const std::string& name = "record.json") {
    return input_error([&] { read_record(*ops, dir / name); }, dir.path().string());
  }
};

TEST_F(Record, ComesBackAsItWas) {
  const RunRecord want = some_record();
  const std::string text = written(want);
  expect_values(nlohmann::json::parse(text), {{"/lesson", want.lesson},
                                              {"/command", want.command},
                                              {"/workload", want.workload},
                                              {"/strategy", want.strategy},
                                              {"/versions", want.versions},
                                              {"/exit_code", 0},
                                              {"/validation_loss", 2.25},
                                              {"/steps/step/29", 29},
                                              {"/steps/loss/7", 5.5 - 7 / 3.0}});  // every bit of a double
  const RunRecord got = read_record(*ops, file);
  EXPECT_EQ(got.ranks, want.ranks);
  EXPECT_EQ(got.flops, want.flops);
  EXPECT_EQ(written(got), text);  // and so is everything else
}

// Records written before operations had a stride, a purpose and a unit can still be read.
TEST_F(Record, ReadsOperationsWithoutNames) {
  auto json = nlohmann::json::parse(written(some_record()));
  for (const char* what : {"predicted_operations", "measured_operations"}) {
    json["ranks"][0][what] = nlohmann::json::array(
        {{{"kind", "all_gather"}, {"dtype", "bf16"}, {"elements", 64}, {"count", 3}, {"ranks", 4}}});
  }
  atomic_write_file(*ops, file, json.dump());
  const RunRecord got = read_record(*ops, file);
  CommPlan expected;
  expected.add({CommKind::all_gather, DType::bf16, Elements(64), WorldSize{4}}, 3);
  EXPECT_TRUE(got.ranks[0].predicted_operations == expected);
  EXPECT_TRUE(got.ranks[0].as_predicted());
  EXPECT_TRUE(got.ranks[1].predicted_operations == operations_of_all_kinds());
}

TEST_F(Record, KeepsWhatIsNotKnownApart) {
  RunRecord r = some_record();
  r.exit_code.reset();
  r.validation_loss.reset();
  r.init.reset();
  r.validation.reset();
  r.flops.reset();
  r.ranks[1].measured_bytes.reset();
  r.ranks[1].measured_operations.reset();
  r.steps.clear();
  written(r);
  const RunRecord got = read_record(*ops, file);
  test::expect_each<bool>({{got.exit_code.has_value(), false},
                           {got.validation_loss.has_value(), false},
                           {got.flops.has_value(), false},
                           {got.init.has_value(), false},
                           {got.validation.has_value(), false}});
  EXPECT_EQ(got.ranks, r.ranks);
  EXPECT_TRUE(got.steps.empty());
  EXPECT_FALSE(got.as_predicted());
}

// In a record's JSON, null means that no evaluation took place, so a loss that is NaN or infinite is stored
// as a text.
TEST_F(Record, AValidationLossThatIsNotFiniteIsNotNone) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  RunRecord r = some_record();
  r.validation_loss = std::numeric_limits<double>::quiet_NaN();
  r.steps[3].validation_loss = 2.5;
  r.steps[5].validation_loss = kInfinity;
  r.steps[7].validation_loss = -kInfinity;
  r.test = TestRecord{{}, 3, 1000};
  expect_values(nlohmann::json::parse(written(r)), {{"/validation_loss", "nan"},
                                                    {"/test/loss", 1000},
                                                    {"/test/perplexity", "inf"},
                                                    {"/steps/validation_loss/4", nullptr}});
  const RunRecord got = read_record(*ops, file);
  ASSERT_TRUE(got.validation_loss);
  EXPECT_TRUE(std::isnan(*got.validation_loss));
  const std::map<std::size_t, std::optional<double>> of_steps = {
      {3, 2.5}, {4, std::nullopt}, {5, kInfinity}, {7, -kInfinity}};
  for (const auto& [step, loss] : of_steps) EXPECT_EQ(got.steps[step].validation_loss, loss) << step;
}

TEST_F(Record, WritesNonFiniteNumbersAsNull) {
  RunRecord r = some_record();
  r.steps[29].loss = std::numeric_limits<double>::quiet_NaN();
  r.steps[29].grad_norm = std::numeric_limits<double>::infinity();
  const auto json = nlohmann::json::parse(written(r));
  EXPECT_TRUE(json["steps"]["loss"][29].is_null());
  const RunRecord got = read_record(*ops, file);
  EXPECT_TRUE(std::isnan(got.steps[29].loss));
  EXPECT_TRUE(std::isnan(got.steps[29].grad_norm));
  EXPECT_EQ(got.steps[28].loss, r.steps[28].loss);
}

TEST_F(Record, SurvivesACommandThatIsNotUtf8) {
  RunRecord r = some_record();
  r.command = "run.sh --data \xff.txt";
  written(r);
  EXPECT_EQ(read_record(*ops, file).command, "run.sh --data \xef\xbf\xbd.txt");
}

// The scripts that draw figures read these keys from the JSON, without the code of this program.
TEST_F(Record, HasTheKeysThatReadersUse) {
  const auto json = nlohmann::json::parse(written(some_record()));
  const std::string gathers =
      R"([{"count":1,"dtype":"bf16","elements":64,"kind":"all_gather","purpose":"parameters","unit":0},)"
      R"({"count":2,"dtype":"bf16","elements":64,"kind":"all_gather","purpose":"hashes","stride":3}])";
  EXPECT_EQ(nlohmann::json(
                {json["ranks"][1]["predicted_operations"][3], json["ranks"][1]["predicted_operations"][4]})
                .dump(),
            gathers);
  EXPECT_NEAR(json["timing"]["mfu"], 3072 / 0.05 * 8e8 / (2 * 1e12), 1e-9);
  EXPECT_EQ(json["init"].dump(), R"({"bytes":1000,"file":"w.safetensors","sum":"00000000000000aa"})");
  expect_values(json, {{"/ranks/1/predicted_bytes/gradients", 4'000'000},
                       {"/ranks/1/predicted_operations/0/kind", "all_reduce"},
                       {"/ranks/1/predicted_operations/1/count", 4},
                       {"/timing/steps", 25},
                       {"/timing/tokens_per_second", 3072 / 0.05},
                       {"/skipped_updates", 3},
                       {"/steps/skipped/9", true},
                       {"/flops/formula", "6 N + 6 L d T"},
                       {"/flops/parameters", 124'000'000},
                       {"/flops/peak_of", "a GPU"},
                       {"/validation/file", "v.txt"},
                       {"/as_predicted", true},
                       {"/format", 1}});
}

TEST_F(Record, KeepsAProfileIfThereIsOne) {
  RunRecord record = some_record();
  EXPECT_EQ(written(record).find("\"profile\""), std::string::npos);
  record.profile =
      Profile{.steps = 2, .step_milliseconds = 10, .rows = {{.op = "GELU", .milliseconds = 4, .alone = 2}}};
  record.profile->communication = {{.kind = CommKind::all_gather, .sent = Bytes(1200)}};
  record.profile->sensors = {1650, 691, 700};
  expect_values(nlohmann::json::parse(written(record)), {{"/profile/steps", 2},
                                                         {"/profile/operations/0/op", "GELU"},
                                                         {"/profile/operations/0/alone", 2.0},
                                                         {"/profile/communication/0/kind", "all_gather"},
                                                         {"/profile/communication/0/sent", 1200},
                                                         {"/profile/sensors/watts", 691.0}});
}

TEST_F(Record, KeepsWhatAGpuHeldAndByWhom) {
  RunRecord record = some_record();
  EXPECT_EQ(written(record).find("\"allocator\""), std::string::npos);
  record.allocator.emplace();
  record.allocator->parts = {{"ledger", Bytes(1000)}, {"scratch of our kernels", Bytes(20)}};
  record.allocator->peak = Bytes(1022);
  record.allocator->beside = {{"context", Bytes(500)}};
  expect_values(nlohmann::json::parse(written(record)), {{"/allocator/predicted/scratch of our kernels", 20},
                                                         {"/allocator/peak", 1022},
                                                         {"/allocator/allocations", nullptr},
                                                         {"/allocator/beside/context", 500}});
  EXPECT_EQ(written(record).find("\"timetable\""), std::string::npos);
  record.timetable = {.rows = {{"measured", 0.25, 0.5, "a step"}}, .ranks = {{{"F0", 0, 1, 0.125, 1.5}}, {}}};
  const nlohmann::json timetable = nlohmann::json::parse(written(record))["timetable"];
  EXPECT_EQ(timetable["rows"].dump(), R"([{"idle":0.5,"name":"measured","seconds":0.25}])");
  EXPECT_EQ(timetable["ranks"].dump(), R"([[["F0",0.0,1.0,0.125,1.5]],[]])");
}

TEST_F(Record, HasNoMfuWithoutAPeak) {
  RunRecord r = some_record();
  r.flops->peak.reset();
  r.flops->peak_of = "none: unknown";
  expect_values(nlohmann::json::parse(written(r)),
                {{"/timing/mfu", nullptr}, {"/flops/peak_of", "none: unknown"}});
  r.flops.reset();
  expect_values(nlohmann::json::parse(written(r)), {{"/timing/mfu", nullptr}, {"/flops", nullptr}});
}

TEST_F(Record, ColumnsOfStepsTakeOneLineEach) {
  const std::string text = written(some_record());
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 130) << text;
}

// A change to the JSON of a good record (an RFC 6902 patch), and the message with which the record is
// refused.
struct Damage {
  const char *name, *op, *at;
  nlohmann::json value;
  std::string message;
};

TEST_F(Record, RefusesWhatIsMalformed) {
  const auto good = nlohmann::json::parse(written(some_record()));
  const auto whole = [](const std::string& from, const std::string& to, const std::string& found) {
    return " must be a whole number from " + from + " to " + to + ", not " + found;
  };
  const std::string most = "2147483647", most_bytes = "1125899906842624";
  const std::vector<Damage> all = {
      {"missing", "remove", "/world", {}, "\"world\" is missing"},
      {"format", "replace", "/format", 2, "\"format\" is not 1, the one this version reads"},
      {"text", "replace", "/lesson", 3, "\"lesson\" must be a text, not 3"},
      {"whole", "replace", "/world", 2.5, "\"world\"" + whole("1", most, "2.5")},
      {"small", "replace", "/threads", std::int64_t{1} << 40,
       "\"threads\"" + whole("0", most, "1099511627776")},
      {"huge", "replace", "/ranks/0/memory_bytes", std::uint64_t{1} << 63,
       "\"ranks[0].memory_bytes\"" + whole("0", most_bytes, "9223372036854775808")},
      {"no world", "replace", "/world", 0, "\"world\"" + whole("1", most, "0")},
      {"no group", "add", "/ranks/0/measured_operations/0/ranks", 0,
       "\"ranks[0].measured_operations[0].ranks\"" + whole("1", most, "0")},
      {"no GPU", "replace", "/flops/gpus", 0, "\"flops.gpus\"" + whole("1", most, "0")},
      {"negative", "replace", "/ranks/1/predicted_bytes/total", -1,
       "\"ranks[1].predicted_bytes.total\"" + whole("0", most_bytes, "-1")},
      {"product", "replace", "/ranks/1/measured_operations/0/elements", std::int64_t{1} << 50,
       "\"ranks[1].measured_operations[0]\" moves more than a step can"},
      {"time", "replace", "/steps/seconds/7", nullptr, "\"steps\" has a step whose \"seconds\" are no time"},
      {"name", "replace", "/lesson", "\x1b[2J", "\"lesson\" is no name of a lesson"},
      {"number", "replace", "/seconds", "1", "\"seconds\" must be a number, not \"1\""},
      {"map", "replace", "/workload/optim.lr", 1, "\"workload.optim.lr\" must be a text, not 1"},
      {"object", "replace", "/versions", 1, "\"versions\" must be an object, not 1"},
      {"array", "replace", "/ranks", 1, "\"ranks\" must be a list, not 1"},
      {"nested", "remove", "/ranks/1/cpu", {}, "\"ranks[1].cpu\" is missing"},
      {"purpose", "add", "/ranks/1/predicted_bytes/air", 1,
       "\"ranks[1].predicted_bytes.air\" is no purpose that this version knows"},
      {"kind", "replace", "/ranks/0/predicted_operations/1/kind", "shout",
       "\"ranks[0].predicted_operations[1].kind\" is \"shout\", which this version does not know"},
      {"length", "remove", "/steps/loss/0", {}, "\"steps.loss\" has 29 values for 30 steps"},
      {"scalar", "replace", "", 3, "the file must be an object, not 3"},
  };
  for (const Damage& damage : all) {
    const nlohmann::json change = {{"op", damage.op}, {"path", damage.at}, {"value", damage.value}};
    atomic_write_file(*ops, file, good.patch(nlohmann::json::array({change})).dump());
    EXPECT_EQ(refusal(), "65|DIR/record.json: " + damage.message +
                             "|a record that a run of this version wrote, unchanged")
        << damage.name;
  }
}

TEST_F(Record, NamesLineAndColumnOfBadJson) {
  atomic_write_file(*ops, file, "{\n \"format\": 1,\n \"lesson\" 3}\n");
  EXPECT_EQ(refusal(),
            "65|DIR/record.json:3:11: is not JSON: unexpected number literal; expected ':'|a record that a "
            "run of this version wrote, unchanged");
  EXPECT_EQ(refusal("none").substr(0, 3), "65|");
}

TEST_F(Record, WhatNoJsonMayBe) {
  const std::string good = written(some_record());
  for (const BadJson& bad : bad_json(good)) {
    atomic_write_file(*ops, file, bad.text);
    expect_refused(bad, "65|", refusal());
  }
}

TEST_F(Record, OneThatIsTooLargeIsNotRead) {
  ops->create(file);
  std::filesystem::resize_file(file, std::uintmax_t{1} << 33U);
  EXPECT_EQ(refusal(),
            "65|DIR/record.json: is larger than 32 MiB: nothing of its kind needs that much|a file that a "
            "run of this program wrote");
}

TEST(RankRecords, AreAsPredictedIfEveryNumberIs) {
  RankRecord r = some_rank(0);
  EXPECT_TRUE(r.as_predicted());
  r.measured_bytes->of.at(Purpose::variance, Place::host) += Bytes(1);
  EXPECT_FALSE(r.as_predicted());
  r = some_rank(0);
  r.measured_operations->add({CommKind::broadcast, DType::f32, Elements(1), WorldSize{2}});
  EXPECT_FALSE(r.as_predicted());
  for (const What what : {What{OpPurpose::parameters, 1}, What{OpPurpose::gradients, 0}}) {
    r = some_rank(0);
    r.predicted_operations.add({CommKind::broadcast, DType::f32, Elements(1), WorldSize{2}},
                               {OpPurpose::parameters, 0});
    r.measured_operations->add({CommKind::broadcast, DType::f32, Elements(1), WorldSize{2}}, what);
    EXPECT_FALSE(r.as_predicted());
  }
  EXPECT_FALSE(RunRecord().as_predicted());
}

TEST(RankRecords, ComeFromOtherRanksAsTheyAre) {
  RankRecord r = some_rank(1);
  EXPECT_EQ(rank_of_text(text_of(r, 2), 2), r);
  r.measured_bytes.reset();
  r.measured_operations.reset();
  r.host = "";
  r.cpu = "two\nlines";
  EXPECT_EQ(rank_of_text(text_of(r, 2), 2), r);
}

TEST(Timing, IsTheMedianAfterTheWarmUp) {
  std::vector<StepRecord> steps;
  for (int i = 0; i < 5; ++i) steps.push_back({.step = i, .tokens = 100, .seconds = 9, .waited_seconds = 9});
  EXPECT_EQ(timing_of(steps), std::nullopt);
  for (int i = 0; i < 20; ++i)
    steps.push_back({.step = 5 + i, .tokens = 100, .seconds = 20.0 - i, .waited_seconds = 1});
  const auto t = timing_of(steps);
  ASSERT_TRUE(t);
  EXPECT_EQ(t->steps, 20);
  // Percentiles 10, 50 and 90 of 1 .. 20 s by nearest rank, tokens a second, and the share of time spent
  // waiting.
  const std::vector<double> found = {t->p10, t->median, t->p90, t->tokens_per_second, t->wait_share};
  EXPECT_EQ(found, (std::vector<double>{2, 10, 18, 10, 20.0 / 210}));
  steps.pop_back();
  EXPECT_EQ(timing_of(steps), std::nullopt) << "19 steps are no measurement";
}

class Steps : public Record {
 protected:
  const Path steps_ = dir / "steps.jsonl";
  std::string refusal() {
    return input_error([&] { read_steps(*ops, steps_); }, dir.path().string());
  }
};

TEST_F(Steps, AreLinesThatExistAsSoonAsTheStepHasEnded) {
  StepLog log(*ops, dir.path());
  for (int i = 0; i < 3; ++i) {
    log.append({i, 2.0 / 3, 1e-3, 1, 3072, 0.5, 0.125});
    const std::vector<StepRecord> read = read_steps(*ops, steps_);
    ASSERT_EQ(read.size(), static_cast<std::size_t>(i + 1));
    EXPECT_EQ(read.back().step, i);
    EXPECT_EQ(read.back().loss, 2.0 / 3);
  }
  const std::string text = read_file(*ops, steps_);
  expect_values(nlohmann::json::parse(text.substr(0, text.find('\n'))),
                {{"/tokens_per_second", 6144.0}, {"/wait_share", 0.25}});
}

TEST_F(Steps, OfAKilledRunCanBeRead) {
  { StepLog(*ops, dir.path()).append({.step = 0, .loss = 1}); }
  std::string text = read_file(*ops, steps_);
  atomic_write_file(*ops, steps_, text + text.substr(0, text.size() / 2));
  EXPECT_EQ(read_steps(*ops, steps_).size(), 1U);
  atomic_write_file(*ops, steps_, text + "{\"step\": 1}\n");
  EXPECT_EQ(refusal(),
            "65|DIR/steps.jsonl:2: \"loss\" is missing|a record that a run of this version wrote, unchanged");
  atomic_write_file(*ops, steps_, text + "{\"step\": \n");
  EXPECT_EQ(refusal(),
            "65|DIR/steps.jsonl:2:10: is not JSON: unexpected end of input; expected '[', '{', or a "
            "literal|a record that a run of this version wrote, unchanged");
}

TEST_F(Steps, WhatNoLineMayBe) {
  { StepLog(*ops, dir.path()).append({.step = 0, .loss = 1}); }
  const std::string good = read_file(*ops, steps_);
  for (BadJson bad : bad_json(good.substr(0, good.size() - 1))) {
    atomic_write_file(*ops, steps_, repeated(good, 2000) + bad.text + "\n");
    expect_refused(bad, "65|DIR/steps.jsonl:2001:", refusal());
  }
  ops->create(steps_);
  std::filesystem::resize_file(steps_, std::uintmax_t{1} << 33U);  // one line that never ends
  EXPECT_EQ(refusal().substr(0, 41), "65|DIR/steps.jsonl:1: is larger than 16 K");
}

TEST_F(Steps, CannotBeWrittenWhereThereIsNoDirectory) {
  ops->create(dir / "none");  // a file
  EXPECT_EQ(input_error([&] { StepLog(*ops, dir / "none"); }).substr(0, 3), "73|");
}

TEST_F(Record, FoldersAreNamedByTimeAndNeverShared) {
  const auto time = std::chrono::system_clock::from_time_t(1738324800);  // date -u -d @1738324800
  const Path root = dir / "runs";
  for (const char* expected : {"2025-01-31T12-00-00", "2025-01-31T12-00-00-2", "2025-01-31T12-00-00-3"})
    EXPECT_EQ(new_run_dir(*ops, root, "00_one_device", time), root / "00_one_device" / expected);
  EXPECT_EQ(ops->kind(root / "00_one_device/2025-01-31T12-00-00-3"), PathKind::directory);
  EXPECT_EQ(utc_text(time), "2025-01-31T12:00:00Z");
}

}  // namespace
}  // namespace sc
