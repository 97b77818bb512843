#include "common/run/run_lesson.h"
#include "lessons/plans.h"
#include "reference_order.h"

int main(int argc, char** argv) {
  return sc::run_lesson<sc::ReferenceOrder>(
      {.name = "00_one_device",
       .question = "What does one training step hold, compute and move?",
       .one_rank_only = true,
       .strategies = sc::lesson_plans()},
      argc, argv);
}
