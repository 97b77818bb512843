// The program around every lesson: command line, start, training, checks, records, end. A main.cpp is one
// call:
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
#include "common/strategy/plans.h"
#include "common/strategy/strategy.h"

namespace sc {

/// The lesson that a run suggests to run after it.
struct NextLesson {
  std::string folder;    // empty: this is the last lesson
  std::string why;       // e.g. "same loss, less memory"
  bool compares = true;  // it trains the same workload
  // Settings of this run that the next lesson should be given too, e.g. "update=delayed".
  std::vector<std::string> with = {};
};

struct LessonInfo {
  std::string name;       // the lesson's folder
  std::string question;   // one sentence, for --help
  std::string does = {};  // what its ranks do, printed after "Lesson 01, data parallel, on 2 ranks: "
  std::string workload = "configs/tiny.json";  // used without --workload; its run.sh has the same
  bool one_rank_only = false;                  // refuse a second rank
  std::vector<Flag> flags = {};                // flags that stand for keys of the strategy
  std::string ranks_flag = "-n";               // the flag that changes the number of ranks that share a step
  NextLesson next = {};
  // The other lessons, as advice if this one does not fit into memory.
  std::vector<StrategyPlans> strategies = {};
};

namespace detail {

struct AnyLesson {
  LessonInfo info;
  Plans& plans;  // with the run's settings
  FieldSet options = plans.fields();
  std::function<std::unique_ptr<Strategy>(RunContext&)> make;
};

int run(const AnyLesson& lesson, int argc, char** argv);

}  // namespace detail

/// Runs lesson S to its end and returns the process's exit code (common/base/check.h). Never throws.
template <Lesson S>
int run_lesson(const LessonInfo& info, int argc, char** argv) {
  typename S::Plans plans;
  const auto make = [&plans](RunContext& context) -> std::unique_ptr<Strategy> {
    return std::make_unique<S>(context, plans.options());
  };
  return detail::run({.info = info, .plans = plans, .make = make}, argc, argv);
}

}  // namespace sc
