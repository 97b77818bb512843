// Lesson 01: data parallelism. Every rank holds everything; gradients are summed over ranks behind backward.
//   Source: Li et al., PyTorch Distributed, VLDB 2020 (buckets and overlap); Goyal et al., arXiv:1706.02677
//   (the sum over ranks is the large batch).
#pragma once

#include <vector>

#include "common/config/field_table.h"
#include "common/strategy/passes.h"
#include "common/strategy/strategy.h"

namespace sc {

/// How much gradient one all-reduce carries: tensor | unit | model | <elements>.
struct BucketSize {
  enum class By { tensor, unit, model, elements };
  By by = By::unit;
  std::int64_t elements = 0;
  bool operator==(const BucketSize&) const = default;
};

struct DataParallelOptions {
  BucketSize bucket;
  bool overlap = true;  // issue a bucket as soon as backward has completed it; off: all after backward
  std::int64_t verify_replicas = 50;  // every k steps all ranks compare a hash of their parameters; 0 = never
};

/// A range of the gradient arena that travels as one all-reduce, complete once backward is done with
/// `ready_after`.
struct Bucket {
  Range range;
  int ready_after;  // unit; complete are the last unit, blocks from the last on, unit 0, block 1
};
/// All buckets, in the order in which backward completes them.
std::vector<Bucket> make_buckets(const ParamLayout& layout, BucketSize size);

class DataParallel {
 public:
  using Options = DataParallelOptions;
  static FieldTable<Options> fields();
  static MemoryPlan memory_plan(const RunShape& shape, const Options& options);
  static CommPlan comm_plan(const RunShape& shape, const Options& options);

  DataParallel(RunContext& context, const Options& options);
  StepResult train_step(std::span<const Batch> micro_batches);
  void settle() {}
  double evaluate(std::span<const Batch> batches);
  void visit_state(StateVisitor& visitor);
  void after_step(std::int64_t step);
  [[nodiscard]] const ParamLayout& layout() const { return layout_; }

 private:
  void forward(const Batch& batch);
  void reduce_grads(int unit);
  void send_bucket(std::size_t bucket);
  void wait_reduced();
  void global_norm();
  void step_all();

  RunContext& context_;
  Options options_;
  ParamLayout layout_;
  std::vector<Bucket> buckets_;
  at::Tensor params_full_, grads_full_, master_full_, momentum_full_,
      variance_full_;                                 // arenas: all units, on every rank
  std::vector<UnitTensors> params_, grads_, master_;  // the units' views of them
  /// A bucket of gradients on its way.
  struct InFlight {
    at::Tensor grads,
        sums;  // its range of grads_full_; the same tensor, or grads_bucket_ where dtypes differ
    Ticket ticket;
  };
  at::Tensor
      grads_bucket_;  // one bucket in precision.reduce_dtype; undefined if that is the gradients' dtype
  std::vector<InFlight> in_flight_;
  at::Tensor hash_, hashes_full_;
  Passes passes_;
};

}  // namespace sc
