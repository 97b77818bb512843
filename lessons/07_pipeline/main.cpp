#include "common/run/run_lesson.h"
#include "lessons/plans.h"
#include "pipeline.h"

int main(int argc, char** argv) {
  return sc::run_lesson<sc::Pipeline>(
      {.name = "07_pipeline",
       .question = "What if each rank holds a few layers, and micro-batches flow through them?",
       .strategies = sc::lesson_plans()},
      argc, argv);
}
