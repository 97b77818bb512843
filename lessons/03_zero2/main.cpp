#include "common/run/run_lesson.h"
#include "lessons/plans.h"
#include "zero2.h"

int main(int argc, char** argv) {
  return sc::run_lesson<sc::Zero2>(
      {.name = "03_zero2",
       .question = "What does a rank save that gives a gradient away as soon as it is complete?",
       .does = "each gives a gradient away as soon as it is complete",
       .next = {"04_zero3", "same loss, and parameters in slices, too"},
       .strategies = sc::lesson_plans()},
      argc, argv);
}
