#include "combined.h"
#include "common/run/run_lesson.h"
#include "lessons/plans.h"

int main(int argc, char** argv) {
  return sc::run_lesson<sc::Combined>(
      {.name = "11_combined",
       .question = "How do stages, data groups and tensor groups meet in one run?",
       .does = "each has a part of a few layers' matrices, and a share of the micro-batches",
       .workload = "configs/tiny_rows.json",
       .next = {"07_pipeline", "its stages alone", /*compares=*/false},
       .strategies = sc::lesson_plans()},
      argc, argv);
}
