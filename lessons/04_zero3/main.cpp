#include "common/run/run_lesson.h"
#include "lessons/plans.h"
#include "zero3.h"

int main(int argc, char** argv) {
  return sc::run_lesson<sc::Zero3>(
      {.name = "04_zero3",
       .question = "How small can a rank become that holds a unit's parameters only while it uses them?",
       .does = "each holds a unit's parameters only while it uses them",
       .next = {"05_offload", "same loss, the optimizer's state in the host's memory"},
       .strategies = sc::lesson_plans()},
      argc, argv);
}
