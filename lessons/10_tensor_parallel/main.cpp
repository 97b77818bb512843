#include "common/run/run_lesson.h"
#include "lessons/plans.h"
#include "tensor_parallel.h"

int main(int argc, char** argv) {
  return sc::run_lesson<sc::TensorParallel>(
      {.name = "10_tensor_parallel",
       .question = "How do ranks share every matrix, and what does that send?",
       .does = "each has a part of every matrix and computes it for all tokens",
       .workload = "configs/tiny_rows.json",
       .next = {"11_combined", "with stages and data groups"},
       .strategies = sc::lesson_plans()},
      argc, argv);
}
