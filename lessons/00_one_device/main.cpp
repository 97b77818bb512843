#include "common/run/run_lesson.h"
#include "lessons/plans.h"
#include "lessons/reference/reference_order.h"

// ReferenceOrder is OneDevice, unless a flag asks for the order in which a later lesson adds.
int main(int argc, char** argv) {
  return sc::run_lesson<sc::ReferenceOrder>(
      {.name = "00_one_device",
       .question = "What does one training step hold, compute and move?",
       .does = "it holds the whole model and computes every micro-batch",
       .one_rank_only = true,
       .flags = {{"virtual-ranks", "W", "adds gradients as W ranks would", "virtual_ranks"},
                 {"reduce-every", "WHEN", "when ranks are summed: step or micro_batch", "reduce_every"},
                 {"groups", "R", "of those ranks: so many groups, which meet once a step", "groups"},
                 {"tied-sum", "HOW", "the tied matrix's two gradients: joint or split", "tied_sum"},
                 {"tensor-ranks", "T", "computes in parts as T tensor ranks would", "tensor_ranks"},
                 {"lanes", "K", "of those ranks: 2 micro-batches together", "lanes"},
                 {"tokens", "HOW", "of those ranks: split or whole", "tokens"},
                 {"context-ranks", "C", "attends in parts as C context ranks would", "context_ranks"},
                 {"parts", "HOW", "of those ranks: zigzag or contiguous", "parts"},
                 {"exchange", "HOW", "of those ranks: ring or gather", "exchange"}},
       .ranks_flag = "--virtual-ranks",
       .next = {"01_data_parallel", "the same batch on two ranks"},
       .strategies = sc::lesson_plans()},
      argc, argv);
}
