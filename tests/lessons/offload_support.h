// The reference for lessons 05 and 06: lesson 00 with lesson 04's order of sums.
#pragma once

#include "lessons/reference/reference_order.h"
#include "tests/support/harness.h"

namespace sc::test {

inline constexpr std::int64_t kOffloadSteps = 4;

inline Workload offloaded_workload(std::int64_t micro_batches, int world) {
  Workload w = odd_workload();
  w.batch.global = micro_batches * world;
  return w;
}

inline RankResult offloaded_reference(const Workload& w, int world, std::int64_t steps = kOffloadSteps) {
  return run_local<ReferenceOrder>(1, w, {.virtual_ranks = world, .reduce_every = ReduceEvery::micro_batch},
                                   steps)
      .at(0);
}

}  // namespace sc::test
