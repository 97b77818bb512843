#include <array>
#include <filesystem>
#include <fstream>

#include "pipedream/schedule_file.h"
#include "tests/pipedream/support.h"
#include "tests/support/bad_json.h"

namespace sc::pipedream {
namespace {

using test::error_of, test::expect_answers;

TEST(Files, EveryScheduleReadsBackEqual) {
  for (const GenerateOptions& o : test::every_schedule(4)) {
    const Schedule s = generate(o);
    EXPECT_EQ(schedule_from_csv(to_csv(s), "t"), s) << test::describe(o);
    EXPECT_EQ(schedule_from_json(to_json(s), "t"), s) << test::describe(o);
  }
}

TEST(Files, Texts) {
  const Schedule s = generate({.family = Family::gpipe, .stages = 2, .microbatches = 1});
  EXPECT_EQ(
      to_csv(s),
      "schedule,stages,microbatches,chunks,versions\ngpipe,2,1,1,flush\nstage,kind,microbatch,chunk,version\n"
      "0,receive_gradient,0,0,0\n0,forward,0,0,0\n0,send_activation,0,0,0\n0,backward,0,0,0\n0,step,-1,0,1\n"
      "1,receive_activation,0,0,0\n1,forward,0,0,0\n1,backward,0,0,0\n1,send_gradient,0,0,0\n1,step,-1,0,"
      "1\n");
  EXPECT_EQ(to_json(s),
            "{\n  \"schedule\": \"gpipe\",\n  \"stages\": 2,\n  \"microbatches\": 1,\n  \"chunks\": 1,\n  "
            "\"versions\": \"flush\",\n"
            "  \"actions\": [\n    [\"RG0\", \"F0\", \"SA0\", \"B0\", \"step@1\"],\n"
            "    [\"RA0\", \"F0\", \"B0\", \"SG0\", \"step@1\"]\n  ]\n}\n");
}

TEST(Files, EmptyListsAndForeignLineEnds) {
  Schedule s;
  s.name = "empty-1.0_x";
  s.stages = 2;
  s.actions.resize(2);
  EXPECT_EQ(schedule_from_csv(to_csv(s), "t"), s);
  EXPECT_EQ(
      schedule_from_json(
          "{\"schedule\":\"empty-1.0_x\",\"stages\":2,\"microbatches\":1,\"chunks\":1,\"versions\":\"flush\","
          "\"actions\":[[],[]]}",
          "t"),
      s);
  EXPECT_EQ(schedule_from_csv("schedule,stages,microbatches,chunks,versions\r\nempty-1.0_x,2,1,1,flush\r\n"
                              "stage,kind,microbatch,chunk,version",
                              "t"),
            s);
}

constexpr const char* kHeads =
    "schedule,stages,microbatches,chunks,versions\nx,2,1,1,flush\nstage,kind,microbatch,chunk,version\n";

TEST(Files, CsvErrorsNameTheLine) {
  const auto refuse = [](const std::string& text) {
    return error_of([&] { schedule_from_csv(text, "a.csv"); });
  };
  const auto row = [&](const std::string& text) { return refuse(kHeads + text + "\n"); };
  expect_answers(
      refuse,
      {{"", "a.csv:0: the line 'schedule,stages,microbatches,chunks,versions' is missing | write it here"},
       {"x\n",
        "a.csv:1: the line 'schedule,stages,microbatches,chunks,versions' is missing | write it here"}});
  const std::string head = "schedule,stages,microbatches,chunks,versions\n";
  expect_answers(
      refuse,
      {{head, "a.csv:1: the schedule's line is missing | write for example 1f1b,4,4,1,flush"},
       {head + "x,2,1,1", "a.csv:2: there are not 5 fields | separate them by commas"},
       {head + "x,2,1,1,flush,", "a.csv:2: there are not 5 fields | separate them by commas"},
       {head + "x,2,1,1,fresh\n",
        "a.csv:2: 'fresh' is no version rule | choose flush, none, stash, vertical_sync or two_buffers"},
       {head + "x,0,1,1,flush\n", "a.csv:2: stages: 0 is out of range | choose 1 to 1024"},
       {head + "x,1025,1,1,flush\n", "a.csv:2: stages: 1025 is out of range | choose 1 to 1024"},
       {head + "x,2x,1,1,flush\n", "a.csv:2: '2x' is no number | write a whole number"},
       {head + "x,99999999999,1,1,flush\n", "a.csv:2: '99999999999' is no number | write a whole number"},
       {head + "x,2,1,1,flush\nstage\n",
        "a.csv:3: the line 'stage,kind,microbatch,chunk,version' is missing | write it here"}});
  expect_answers(row, {{"2,forward,0,0,0", "a.csv:4: there is no stage 2 | choose 0 to stages - 1"},
                       {"-1,forward,0,0,0", "a.csv:4: there is no stage -1 | choose 0 to stages - 1"},
                       {"0,forwards,0,0,0",
                        "a.csv:4: 'forwards' is no kind of action | choose for example forward, backward, "
                        "send_activation or step"},
                       {"", "a.csv:4: there are not 5 fields | separate them by commas"},
                       {"0,forward,0,0,", "a.csv:4: '' is no number | write a whole number"}});
  EXPECT_EQ(row("1,forward,0,0,0\n0,forward,7,0,0").find("a.csv: stage 0, action 0: F7 lies outside"), 0U);
}

TEST(Files, NamesHaveFewLetters) {
  for (const std::string& name : {std::string(), std::string("a b"), std::string("a\"b"),
                                  std::string(65, 'a'), std::string("\xc3\xa9")}) {
    const std::string text = "schedule,stages,microbatches,chunks,versions\n" + name +
                             ",1,1,1,flush\nstage,kind,microbatch,chunk,version\n";
    EXPECT_NE(error_of([&] { schedule_from_csv(text, "t"); }).find("name is not 1 to 64"), std::string::npos)
        << name;
  }
}

TEST(Files, JsonErrorsNameThePlace) {
  const auto refuse = [](const std::string& text) {
    return error_of([&] { schedule_from_json(text, "a.json"); });
  };
  const auto with = [&](const std::string& key, const std::string& value) {
    std::string text = "{";
    for (const auto& [k, v] : std::vector<std::pair<std::string, std::string>>{{"schedule", "\"x\""},
                                                                               {"stages", "1"},
                                                                               {"microbatches", "1"},
                                                                               {"chunks", "1"},
                                                                               {"versions", "\"flush\""},
                                                                               {"actions", "[[\"F0\"]]"}}) {
      if (k == key && value.empty()) continue;
      text += (text.size() > 1 ? ",\"" : "\"") + k + "\":" + (k == key ? value : v);
    }
    return refuse(text + "}");
  };
  const std::string fix = " | correct it: valid JSON, every key once, as pipedream/README.md shows it";
  EXPECT_EQ(with("none", "1"), "nothing thrown");
  expect_answers(refuse,
                 {{"[]", "a.json: the file must be an object, not a list" + fix},
                  {"{\n \"a\": }", "a.json:2:7: is not JSON: unexpected '}'..."},
                  {"{\"stages\": 1, \"stages\": 2}", "a.json:1:23: key \"stages\" is given twice" + fix},
                  {"{\"schedule\":\"x\",\"stages\":1,\"microbatches\":1,\"chunks\":1,\"versions\":\"flush\","
                   "\"actions\":[[]],\"more\":1}",
                   "a.json: \"more\" is not a key of it" + fix}});
  for (const auto& [key, value, said] : std::vector<std::array<std::string, 3>>{
           {"stages", "", "a.json: \"stages\" is missing" + fix},
           {"stages", "1.5", "a.json: \"stages\" must be a whole number from 0 to 2147483647, not 1.5" + fix},
           {"stages", "-1", "a.json: \"stages\" must be a whole number from 0 to 2147483647, not -1" + fix},
           {"stages", "4294967297",
            "a.json: \"stages\" must be a whole number from 0 to 2147483647, not 4294967297" + fix},
           {"schedule", "3", "a.json: \"schedule\" must be a text, not 3" + fix},
           {"versions", "\"new\"",
            "a.json: \"versions\" must be flush, none, stash, vertical_sync or two_buffers, not \"new\"" +
                fix},
           {"actions", "{}", "a.json: \"actions\" must be a list, not an object" + fix},
           {"actions", "[1]", "a.json: \"actions[0]\" must be a list, not 1" + fix},
           {"actions", "[[1]]", "a.json: \"actions[0][0]\" must be a text, not 1" + fix},

           {"actions", "[]", "a.json: actions: there are 0 lists for 1 stages | write one list a stage"},
           {"microbatches", "0", "a.json: microbatches: 0 is out of range | choose 1 to 1048576"}})
    EXPECT_EQ(with(key, value), said) << key;
  EXPECT_EQ(with("actions", "[[\"Z\"]]").find("a.json, stage 0: 'Z' is no action"), 0U);
}

TEST(Files, WhatNoJsonMayBe) {
  const std::string good = to_json(generate({.stages = 2, .microbatches = 2}));
  for (const sc::test::BadJson& bad : sc::test::bad_json(good))
    expect_refused(bad, "a.json", error_of([&] { schedule_from_json(bad.text, "a.json"); }));
}

TEST(Files, OneThatIsTooLargeIsNotRead) {
  const std::string path = ::testing::TempDir() + "/pipedream_large.json";
  write_text(path, "{");
  std::filesystem::resize_file(path, std::uintmax_t{1} << 33U);
  EXPECT_EQ(
      error_of([&] { read_schedule(path); }),
      path +
          ": is larger than 8 MiB: nothing of its kind needs that much | a schedule of fewer micro-batches");
  std::filesystem::remove(path);
}

TEST(Files, OnDisk) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "pipedream_file_test";
  std::filesystem::create_directories(folder);
  const Schedule s = generate({.family = Family::two_bw, .stages = 2, .microbatches = 2, .batches = 2});
  const std::string csv = (folder / "s.csv").string();
  const std::string json = (folder / "s.json").string();
  write_text(csv, to_csv(s));
  write_text(json, to_json(s));
  EXPECT_EQ(read_schedule(csv), s);
  EXPECT_EQ(read_schedule(json), s);
  const auto refuse = [](const std::string& path) {
    return error_of([&] { read_schedule(path); }, ExitCode::usage);
  };
  expect_answers(
      refuse,
      {{(folder / "none.csv").string(), (folder / "none.csv").string() + ": cannot be read | check the name"},
       {folder.string() + ".txt", folder.string() + ".txt: is neither .csv nor .json | rename the file"}});
  EXPECT_EQ(error_of([&] { read_text(folder.string()); }, ExitCode::usage),
            folder.string() + ": cannot be read | check the name");
  EXPECT_EQ(error_of([&] { write_text((folder / "no" / "x").string(), "a"); }, ExitCode::cannot_write),
            (folder / "no" / "x").string() + ": cannot be written | check the folder and the space left");
  write_text((folder / "empty.csv").string(), "");
  EXPECT_EQ(read_text((folder / "empty.csv").string()), "");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace sc::pipedream
