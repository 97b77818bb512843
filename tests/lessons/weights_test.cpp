// Tests saving, loading and evaluating weights in lesson 04: outside the ledger they take a unit of each rank
// at most, never the model.
#include "common/strategy/weights.h"

#include "common/run/run_lesson.h"
#include "lessons/04_zero3/zero3.h"
#include "tests/storage/temp_dir.h"
#include "tests/support/fake_strategy.h"
#include "tests/support/harness.h"

namespace sc {
namespace {

/// A model so deep that all units together are many times the size of one.
Workload deep_workload(DType dtype) {
  Workload w = test::odd_workload();
  w.model.layers = 24;
  w.precision = {.dtype = dtype, .grad_dtype = dtype, .reduce_dtype = dtype};
  w.batch.global = 6;
  return w;
}

/// The sizes of the largest unit and tensor, in fp32.
struct Largest {
  Bytes unit, tensor;
};
Largest largest_of(const ParamLayout& layout) {
  Largest largest;
  for (int unit = 0; unit < layout.num_units(); ++unit) {
    const UnitLayout& u = layout.unit(unit);
    largest.unit = std::max(largest.unit, bytes_of(Elements(u.sharded_size + u.whole_size), DType::f32));
    for (const ParamTensor& t : u.tensors)
      largest.tensor = std::max(largest.tensor, bytes_of(Elements(t.numel()), DType::f32));
  }
  return largest;
}

/// The peak of what all ranks of this process allocated for each purpose, beyond what existed before.
struct Taken {
  Bytes save, load, evaluate;
  double loss_before = 0, loss_after = 0;
};

/// Runs one rank: a step, so that momentum and master are no longer the initial ones; then saves, loads,
/// evaluates.
Taken run_rank(Communicator& comm, const RunShape& shape, const Zero3Options& options,
               test::StepWitness& witness, const std::string& path) {
  test::Alone<Zero3> rank(comm, shape, options, 1e-2);
  Zero3& lesson = rank.lesson;
  const std::vector<Batch> batches = test::made_up_step(shape, 0);
  lesson.train_step(batches);
  const auto taken_by = [&](const auto& f) {
    witness.begin(to_int(comm.rank()));
    f();
    witness.end(to_int(comm.rank()));
    return witness.during - witness.before;
  };
  Taken taken;
  taken.loss_before = test::evaluate(lesson, comm, batches);
  taken.save =
      taken_by([&] { detail::save_weights(lesson, lesson.layout(), comm, *posix_file_ops(), path, [] {}); });
  lesson.train_step(batches);
  taken.load = taken_by([&] { detail::load_weights(lesson, lesson.layout(), path); });
  taken.evaluate = taken_by([&] { taken.loss_after = test::evaluate(lesson, comm, batches); });
  return taken;
}

Taken run_world(int world, const Workload& w, const Zero3Options& options) {
  const test::TempDir dir;
  test::StepWitness witness(world);
  Taken taken;
  for (const std::exception_ptr& error : test::on_ranks(world, [&](Communicator& comm) {
         try {
           const RunShape shape = test::shape_for(w, world, to_int(comm.rank()), CommBackend::local);
           const Taken mine = run_rank(comm, shape, options, witness, (dir / "w.safetensors").string());
           if (comm.rank() == Rank{0}) taken = mine;
         } catch (...) {
           comm.abort();
           witness.leave();
           throw;
         }
       }))
    if (error) std::rethrow_exception(error);
  return taken;
}

class NeverTheWholeModel : public ::testing::TestWithParam<std::tuple<int, DType, std::int64_t>> {};

TEST_P(NeverTheWholeModel, IsOnARankToSaveToLoadOrToEvaluate) {
  const auto [world, dtype, persist_below] = GetParam();
  const Workload w = deep_workload(dtype);
  const ParamLayout layout(w.model, WorldSize{world}, persist_below);
  const Bytes model = bytes_of(layout.arena_size(), DType::f32);
  const Largest largest = largest_of(layout);
  // Saving, every rank assembles a unit, and rank 0 turns one matrix at a time as the file has it.
  const Bytes save = largest.unit * world + largest.tensor;
  // Loading, every rank reads a unit, tensor by tensor: the file's bytes are copied to where numbers may lie.
  const Bytes load = (largest.unit + largest.tensor) * world;
  // Evaluating, gathered units lie in buffers of the ledger, which live; an operation takes less than a unit
  // for itself.
  const Bytes evaluate = largest.unit * world;
  ASSERT_LT(std::max({save, load, evaluate}), model) << "the model on one rank would not be noticed";
  const Taken taken = run_world(world, w, {.persist_below = persist_below});
  EXPECT_LE(taken.save.value(), save.value());
  EXPECT_GE(taken.save.value(), largest.unit.value()) << "the witness sees nothing";
  EXPECT_LE(taken.load.value(), load.value());
  EXPECT_GE(taken.load.value(), largest.unit.value()) << "the witness sees nothing";
  EXPECT_LE(taken.evaluate.value(), evaluate.value());
  EXPECT_EQ(taken.loss_after, taken.loss_before) << "what was saved was loaded";
}

INSTANTIATE_TEST_SUITE_P(Worlds, NeverTheWholeModel,
                         ::testing::Combine(::testing::Values(2, 3),
                                            ::testing::Values(DType::f32, DType::bf16),
                                            ::testing::Values(0, 100)));

}  // namespace
}  // namespace sc
