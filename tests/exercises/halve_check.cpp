#include <ATen/ops/empty.h>

#include "lessons/02_zero1/exercise/halve.h"
#include "tests/exercises/check.h"
#include "tests/exercises/world.h"

namespace sc::exercise {
namespace {

const std::vector<std::int64_t> kUnits = {720, 132, 132, 48};  // elements; 1 to 4 ranks divide them
constexpr float kRate = 0.5F;

float param(std::int64_t unit, std::int64_t i) { return static_cast<float>(unit + 2 * i); }
float grad(std::int64_t rank, std::int64_t unit, std::int64_t i) {
  return static_cast<float>(rank + 1) / static_cast<float>(unit + i + 3);
}

class MadeUpStep : public OwnedStep {
 public:
  explicit MadeUpStep(const Communicator& comm) : rank_(to_int(comm.rank())), ranks_(to_int(comm.size())) {
    for (std::size_t u = 0; u < kUnits.size(); ++u) {
      params_.push_back(at::empty({kUnits[u]}, at::kFloat));
      grads_.push_back(at::empty({kUnits[u]}, at::kFloat));
      for (std::int64_t i = 0; i < kUnits[u]; ++i) {
        params_[u].mutable_data_ptr<float>()[i] = param(static_cast<std::int64_t>(u), i);
        grads_[u].mutable_data_ptr<float>()[i] = grad(rank_, static_cast<std::int64_t>(u), i);
      }
    }
  }
  int num_units() const override { return static_cast<int>(kUnits.size()); }
  at::Tensor& params(int unit) override { return params_.at(static_cast<std::size_t>(unit)); }
  at::Tensor& grads(int unit) override { return grads_.at(static_cast<std::size_t>(unit)); }
  Range mine(int unit) const override {
    const std::int64_t size = kUnits.at(static_cast<std::size_t>(unit)) / ranks_;
    return {rank_ * size, (rank_ + 1) * size};
  }
  void update(int unit) override {
    for (std::int64_t i = mine(unit).begin; i < mine(unit).end; ++i)
      params(unit).mutable_data_ptr<float>()[i] -= kRate * grads(unit).const_data_ptr<float>()[i];
  }

 private:
  std::int64_t rank_, ranks_;
  std::vector<at::Tensor> params_, grads_;
};

void check_params(MadeUpStep& step, int ranks, const std::string& where) {
  for (int unit = 0; unit < step.num_units(); ++unit)
    for (std::int64_t i = 0; i < step.params(unit).numel(); ++i) {
      float sum = grad(0, unit, i);
      for (int r = 1; r < ranks; ++r) sum += grad(r, unit, i);
      require(step.params(unit).const_data_ptr<float>()[i] == param(unit, i) - kRate * sum,
              where + "parameter " + std::to_string(i) + " of unit " + std::to_string(unit) +
                  " is not the one before minus the rate times the sum of gradients");
    }
}

Bytes sent(const CommPlan& plan) { return moved_bytes(plan, Way::wire, Rank{0}); }

std::int64_t operations(const CommPlan& plan) {
  std::int64_t sum = 0;
  for (const auto& entry : plan.count) sum += entry.second;
  return sum;
}

void check_world(int ranks) {
  World world(ranks);
  const auto steps = world.each([](RecordingCommunicator& comm) {
    auto mine = std::make_unique<MadeUpStep>(comm);
    reduce_update_publish(*mine, comm);
    return mine;
  });
  CommPlan target;
  for (const std::int64_t n : kUnits) {
    target.add({CommKind::reduce_scatter, DType::f32, Elements(n), WorldSize{ranks}});
    target.add({CommKind::all_gather, DType::f32, Elements(n), WorldSize{ranks}});
  }
  for (int r = 0; r < ranks; ++r) {
    const std::string where = std::to_string(ranks) + " ranks, rank " + std::to_string(r) + ": ";
    check_params(*steps[static_cast<std::size_t>(r)], ranks, where);
    const Bytes found = sent(world.issued(r)), needed = sent(target);
    require(found <= needed, where + std::to_string(found.value()) + " bytes were sent; " +
                                 std::to_string(needed.value()) + " are enough");
    const std::int64_t count = operations(world.issued(r));
    require(count <= operations(target), where + std::to_string(count) + " operations; " +
                                             std::to_string(operations(target)) + " are enough");
  }
}

std::string check() {
  for (const int ranks : {2, 1, 3, 4}) check_world(ranks);
  return "1 to 4 ranks: the same parameters on every rank, two operations a unit, two thirds of the bytes";
}

}  // namespace

const Exercise kExercise{
    "halve", "an all-reduce is a reduce-scatter and an all-gather; which of the two does update() not need?",
    check};

}  // namespace sc::exercise
