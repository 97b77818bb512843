#include "common/run/run_lesson.h"
#include "lessons/plans.h"
#include "zero1.h"

int main(int argc, char** argv) {
  return sc::run_lesson<sc::Zero1>(
      {.name = "02_zero1",
       .question = "What does a rank save that keeps the optimizer's state of one slice only?",
       .does = "each keeps the optimizer's state of one slice of the model",
       .next = {"03_zero2", "same loss but for another order of sums, fewer gradients held"},
       .strategies = sc::lesson_plans()},
      argc, argv);
}
