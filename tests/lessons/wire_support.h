// One rank of a lesson over MPI, whose bytes are counted below all of our code. Header-only: linked with the
// lesson under test.
#pragma once

#include <vector>

#include "common/records/report.h"
#include "tests/comm/mpi_test_main.h"
#include "tests/comm/pmpi_counter.h"
#include "tests/support/harness.h"

namespace sc::test {

template <Lesson S>
struct RankOf : Alone<S> {
  RankOf(const Workload& workload, const typename S::Options& options)
      : Alone<S>(mpi_world(),
                 shape_for(workload, to_int(mpi_world().size()), to_int(mpi_world().rank()), CommBackend::mpi,
                           typename S::Plans(options).mesh(mpi_world().size())),
                 options, 1e-3),
        plan(typename S::Plans(options).comm_plan(this->shape)) {}

  /// The bytes sent in one step. Every ticket has been waited for when it ends: nothing is sent later.
  WireCount count_step(std::int64_t step) {
    batches = made_up_step(this->shape, step);
    mpi_world().barrier();  // whatever was before has been sent
    reset_wire_count();
    this->lesson.train_step(batches);
    return wire_count();
  }
  CommPlan plan;
  std::vector<Batch> batches;  // of the last step: after_step may look at them
};

/// Calls f(workload) for fp32, and for bf16 with fp32 gradients, so that a message of the wrong dtype has
/// other bytes.
template <class F>
void for_each_precision(const F& f, Workload w = odd_workload()) {
  f(w);
  w.precision = {.dtype = DType::bf16, .grad_dtype = DType::f32, .reduce_dtype = DType::f32};
  SCOPED_TRACE("bf16 beside fp32 gradients");
  f(w);
}

}  // namespace sc::test
