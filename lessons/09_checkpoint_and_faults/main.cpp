#include "common/run/run_lesson.h"
#include "lessons/04_zero3/zero3.h"
#include "lessons/plans.h"

int main(int argc, char** argv) {
  return sc::run_lesson<sc::Zero3>({.name = "09_checkpoint_and_faults",
                                    .question = "What must be on a disk, and when, so that a run that loses "
                                                "a rank ends as if nothing had happened?",
                                    .does = "what it takes to go on when a rank is lost",
                                    .strategies = sc::lesson_plans()},
                                   argc, argv);
}
