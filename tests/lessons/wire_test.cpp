// The bytes that MPI really sent in a step, counted beneath everything of ours, are those of the
// communication plan.
#include "common/comm/recording_communicator.h"
#include "common/run/report.h"
#include "lessons/01_data_parallel/data_parallel.h"
#include "tests/comm/mpi_test_main.h"
#include "tests/comm/pmpi_counter.h"
#include "tests/support/harness.h"

namespace sc {
namespace {

using By = BucketSize::By;

/// One rank of a run of lesson 01 over MPI.
class Rank01 {
 public:
  Rank01(const Workload& workload, const DataParallelOptions& options)
      : shape_(test::shape_for(workload, to_int(test::mpi_world().size()), to_int(test::mpi_world().rank()),
                               CommBackend::mpi)),
        ledger_(at::kCPU),
        comm_(test::mpi_world()),
        scalars_(test::step_scalars(1e-3, 0)),
        context_{shape_, comm_, ledger_, scalars_},
        lesson_(context_, options),
        predicted_(bytes_sent(DataParallel::comm_plan(shape_, options), shape_.world, shape_.rank)) {}

  test::WireCount count_step(std::int64_t step) {
    const Workload& w = shape_.workload;
    const std::int64_t mine = w.batch.global / w.batch.micro / to_int(shape_.world);
    std::vector<Batch> batches;
    for (std::int64_t j = 0; j < mine; ++j)
      batches.push_back(test::made_up_batch(w, step, to_int(shape_.rank) * mine + j));
    comm_.barrier();  // whatever was before has been sent
    test::reset_wire_count();
    lesson_.train_step(batches);
    return test::wire_count();
  }
  void check_replicas() { lesson_.after_step(0); }
  [[nodiscard]] std::int64_t predicted() const { return predicted_.value(); }

 private:
  RunShape shape_;
  Ledger ledger_;
  RecordingCommunicator comm_;
  StepScalars scalars_;
  RunContext context_;
  DataParallel lesson_;
  Bytes predicted_;
};

TEST(WireBytes, OfAStepAreThePlans) {
  const c10::InferenceMode inference;
  at::set_num_threads(1);
  for (const BucketSize bucket :
       {BucketSize{By::tensor}, BucketSize{By::unit}, BucketSize{By::model}, BucketSize{By::elements, 977}}) {
    for (const bool overlap : {true, false}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(bucket.by)) + (overlap ? " overlap" : " after"));
      Rank01 rank(test::odd_workload(), {.bucket = bucket, .overlap = overlap, .verify_replicas = 1});
      for (const std::int64_t step : {0, 1}) {
        const test::WireCount sent = rank.count_step(step);
        EXPECT_EQ(sent.bytes, rank.predicted()) << "step " << step;
        EXPECT_EQ(sent.collectives, 0);
        EXPECT_EQ(sent.messages > 0, to_int(test::mpi_world().size()) > 1);
      }
      rank.check_replicas();
    }
  }
}

}  // namespace
}  // namespace sc
