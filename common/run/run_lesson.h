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
#include "common/strategy/plans.h"
#include "common/strategy/strategy.h"

namespace sc {

/// What to run after a lesson.
struct NextLesson {
  std::string folder;                  // empty: it is the last one
  std::string why;                     // "same loss, less memory"
  bool compares = true;                // it trains the same workload
  std::vector<std::string> with = {};  // "update=delayed": of this run's settings, what it is given, too
};

struct LessonInfo {
  std::string name;       // the folder's
  std::string question;   // one sentence, for --help
  std::string does = {};  // what its ranks do, behind "Lesson 01, data parallel, on 2 ranks: "
  std::string workload = "configs/tiny.json";  // without --workload; its run.sh says the same
  bool one_rank_only = false;                  // a second rank is an error
  std::vector<Flag> flags = {};                // that stand for keys of the strategy
  std::string ranks_flag = "-n";               // what changes the number of ranks that share a step
  NextLesson next = {};
  std::vector<StrategyPlans> strategies =
      {};  // the other lessons: what to advise where this one does not fit
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
