// The program around every lesson: command line, start, training, checks, records, end. main.cpp is one call:
//   int main(int argc, char** argv) {
//     return sc::run_lesson<sc::MyStrategy>({.name = "my_lesson"}, argc, argv);
//   }
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/config/command_line.h"
#include "common/config/field_table.h"
#include "common/strategy/any_strategy.h"
#include "common/strategy/plans.h"

namespace sc {

struct LessonInfo {
  std::string name;                            // the folder's
  std::string question;                        // one sentence, for --help
  std::string workload = "configs/tiny.json";  // without --workload; its run.sh says the same
  bool one_rank_only = false;                  // a second rank is an error
  std::vector<Flag> flags = {};                // that stand for keys of the strategy
  std::string ranks_flag = "-n";               // what changes the number of ranks that share a step
  std::vector<StrategyPlans> strategies =
      {};  // the other lessons: what to advise where this one does not fit
};

namespace detail {

struct AnyLesson {
  LessonInfo info;
  FieldSet options;  // bound to the options that the functions below use
  std::function<Division(WorldSize)> division;
  std::function<MemoryPlan(const RunShape&)> memory_plan;
  std::function<CommPlan(const RunShape&)> comm_plan;
  std::function<std::string(const RunShape&)> predict;
  std::function<SlowLinks()> slow_links;
  std::function<Bytes(const RunShape&)> pending_bytes;  // that a checkpoint has besides states
  std::function<std::int64_t(const RunShape&)> updates_a_step;
  std::function<std::unique_ptr<AnyStrategy>(RunContext&)> make;
  std::string no_graph;                        // why no CUDA graph can hold a step; empty: it can
  std::string no_evaluation;                   // why it does so at the end alone; empty: it does not
  std::function<std::string()> no_checkpoint;  // why it saves none; empty: it does
};

int run(const AnyLesson& lesson, int argc, char** argv);

}  // namespace detail

/// Runs lesson S to its end and returns the process's exit code (common/base/check.h). Never throws.
template <Strategy S>
int run_lesson(const LessonInfo& info, int argc, char** argv) {
  typename S::Options options;
  detail::AnyLesson lesson;
  lesson.info = info;
  lesson.options = S::fields().bind(options);
  lesson.division = [&](WorldSize world) { return division_of<S>(options, world); };
  lesson.memory_plan = [&](const RunShape& shape) { return S::memory_plan(shape, options); };
  lesson.comm_plan = [&](const RunShape& shape) { return S::comm_plan(shape, options); };
  lesson.predict = [&](const RunShape& shape) { return predict<S>(shape, options); };
  lesson.slow_links = [&] { return slow_links_of<S>(options); };
  lesson.pending_bytes = [&](const RunShape& shape) { return pending_bytes_of<S>(shape, options); };
  lesson.updates_a_step = [&](const RunShape& shape) { return updates_a_step_of<S>(shape, options); };
  lesson.make = [&](RunContext& context) {
    return std::make_unique<detail::ErasedStrategy<S>>(context, options);
  };
  lesson.no_graph = no_graph_reason<S>();
  lesson.no_evaluation = no_evaluation_reason<S>();
  lesson.no_checkpoint = [&] { return no_checkpoint_reason<S>(options); };
  return detail::run(lesson, argc, argv);
}

}  // namespace sc
