// Tests the lines of the default screen that describe one run.
#include "common/run/screen_text.h"

#include <gtest/gtest.h>

#include "common/strategy/plans.h"
#include "lessons/plans.h"
#include "tests/support/answers.h"

namespace sc {
namespace {

using detail::AnyLesson;
using detail::format_header;
using detail::format_next;
using detail::TrainJob;

/// A run of lesson 01 without any flags.
struct Job {
  StrategyPlans strategy = lesson_plans_of("01_data_parallel", {});
  std::unique_ptr<Plans> plans = strategy.plans->with({});
  AnyLesson lesson{.info = {.name = "01_data_parallel", .question = "Why?", .does = "each does its part"},
                   .plans = *plans,
                   .make = nullptr};
  Launch launch{.world = WorldSize{2}};
  CommandLine line;
  BatchPlan batch{.global = 12, .micro = 1, .data_parallel = 2, .accumulation = 6, .note = ""};

  Job() {
    lesson.info.next = {"02_next", "less memory"};
    lesson.info.strategies = lesson_plans();
    line.sources.workload_file = "/somewhere/configs/tiny.json";
  }
  [[nodiscard]] std::string next() const {
    return format_next({lesson, launch, line, batch, "", ""}, "runs/a/record.json");
  }
  [[nodiscard]] std::string header(std::int64_t stages, BatchPlan of, std::int64_t tensor = 1) const {
    RunShape shape;
    shape.workload.model = {.layers = 2, .heads = 2, .width = 32, .context = 32, .vocab = 257, .tied = true};
    shape.workload.batch = {.sequence = 32, .global = 12, .micro = 1};
    shape.mesh = Mesh(WorldSize{static_cast<int>(stages * of.data_parallel * tensor)},
                      {{Axis::stages, stages}, {Axis::tensor, tensor}});
    return format_header(lesson, shape, of);
  }
};

TEST(Header, SaysWhatTheLessonDoes) {
  const Job job;
  EXPECT_EQ(job.header(1, job.batch),
            "Lesson 01, data parallel, on 2 ranks: each does its part\n"
            "  model 0.03 M parameters, 2 blocks      12 rows x 32 tokens = 1 x 6 micro-batches x 2 ranks\n");
  const auto tail = [&](std::int64_t stages, const BatchPlan& batch) {
    const std::string text = job.header(stages, batch);
    return text.substr(text.find(" = "));
  };
  test::expect_texts(
      {{tail(1, {.global = 1, .micro = 1, .data_parallel = 1, .accumulation = 1, .note = ""}),
        " = 1 x 1 micro-batch x 1 rank\n"},
       {tail(4, {.global = 12, .micro = 1, .data_parallel = 1, .accumulation = 12, .note = ""}),
        " = 1 x 12 micro-batches through 4 stages\n"},
       {tail(2, job.batch), " = 1 x 6 micro-batches through 2 stages x 2 replicas\n"}});
  const std::string cube = job.header(2, job.batch, 2);
  EXPECT_NE(cube.find("1 x 6 micro-batches through 2 stages on 2 tensor ranks x 2 replicas\n"),
            std::string::npos);
}

TEST(Next, IsTheSameWorkloadComparedWithThisRun) {
  Job job;
  EXPECT_EQ(job.next(), "less memory: lessons/02_next/run.sh -n 2 --compare runs/a/record.json");
  job.line.sources.workload_file = "configs/other.json";
  job.line.sources.settings = {{"steps", "20", "--steps 20"},
                               {"bucket", "50000", "--set bucket=50000"},
                               {"data.source", "my $(own) text's.txt", "--data"}};
  EXPECT_EQ(job.next(),
            "less memory: lessons/02_next/run.sh -n 2 --workload configs/other.json --set steps=20 --set "
            "'data.source=my $(own) text'\\''s.txt' --compare runs/a/record.json")
      << "the strategy's own settings are not the next one's";
  job.lesson.info.next.with = {"bucket=50000", "bucket=unit"};
  EXPECT_NE(job.next().find("--set bucket=50000 --compare"), std::string::npos) << "but for those that are";
}

TEST(Next, MayHaveAnotherWorkloadOrBeNone) {
  Job job;
  job.lesson.info.next.compares = false;
  EXPECT_EQ(job.next(), "less memory: lessons/02_next/run.sh");
  job.lesson.info.next.folder = "";
  EXPECT_EQ(job.next(), "");
}

}  // namespace
}  // namespace sc
