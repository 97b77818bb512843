#include "common/run/run_lesson.h"
#include "data_parallel.h"
#include "lessons/plans.h"

int main(int argc, char** argv) {
  return sc::run_lesson<sc::DataParallel>(
      {.name = "01_data_parallel",
       .question = "How do ranks with a whole replica each share a batch and stay equal?",
       .does = "each holds the whole model and takes its share of a batch",
       .next = {"02_zero1", "same loss, less memory"},
       .strategies = sc::lesson_plans()},
      argc, argv);
}
