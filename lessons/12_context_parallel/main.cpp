#include "common/run/run_lesson.h"
#include "context_parallel.h"
#include "lessons/plans.h"

int main(int argc, char** argv) {
  return sc::run_lesson<sc::ContextParallel>(
      {.name = "12_context_parallel",
       .question = "How do ranks share the tokens of a row, when each token needs those before it?",
       .does = "each has tokens of its own of every row; keys and values travel",
       .workload = "configs/tiny_long.json",
       .next = {"11_combined", "with stages, data and tensor groups"},
       .strategies = sc::lesson_plans()},
      argc, argv);
}
