#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/model/unit_views.h"
#include "lessons/00_one_device/exercise/lent/tiny_gpt.h"
#include "lessons/10_tensor_parallel/exercise/who_is_summed.h"
#include "lessons/10_tensor_parallel/tensor_lane.h"
#include "lessons/10_tensor_parallel/tensor_parallel_plan.h"
#include "tests/exercises/check.h"
#include "tests/exercises/tiny_data.h"
#include "tests/exercises/world.h"

namespace sc::exercise {
namespace {

constexpr std::int64_t kSteps = 2, kMicroBatches = 2;
constexpr std::uint64_t kSeed = 11;

// A workload of which two ranks have equally large parts, and three ranks unequal ones. Two and three divide
// its tokens.
Workload workload() {
  Workload w = tiny_workload();
  w.model = {.layers = 2, .heads = 4, .width = 12, .context = 16, .vocab = 300, .tied = true};
  w.batch = {.sequence = 12, .global = kMicroBatches, .micro = 1};
  return w;
}

// Micro-batches in which every rank's tokens have losses, some rows more than others.
std::vector<Batch> batches_of(std::int64_t step) {
  std::vector<Batch> batches;
  std::int64_t targets = 0;
  for (std::int64_t j = 0; j < kMicroBatches; ++j) {
    Batch batch = tiny_batch(workload(), step, j);
    for (std::int64_t i = 0; i < batch.targets.numel(); ++i)
      batch.targets.mutable_data_ptr<std::int64_t>()[i] =
          i % 5 == 3 + j ? -1 : 37 * (i + 1) % workload().model.vocab;
    targets += count_targets(batch);
    batches.push_back(std::move(batch));
  }
  for (Batch& batch : batches) batch.scale = at::full({}, 1.0 / static_cast<double>(targets), at::kFloat);
  return batches;
}

/// Lesson 00's gradients of a step: one device, all tokens, whole tensors.
class OneDevice {
 public:
  explicit OneDevice(std::int64_t step)
      : layout_(workload().model, WorldSize{1}), model_(workload(), WorldSize{1}) {
    model_.init(kSeed);
    Write write = Write::overwrite;
    for (const Batch& batch : batches_of(step)) {
      model_.forward_backward(batch, batch.scale.item<double>(), write);
      write = Write::accumulate;
    }
  }
  /// The part of a tensor's gradient that belongs on the rank whose layout has `part` of the tensor.
  [[nodiscard]] at::Tensor part_of(int unit, const ParamTensor& part) {
    const std::int64_t begin = layout_.unit(unit).sharded_begin + layout_.find(unit, part.name)->offset;
    at::Tensor out = at::empty({part.numel()}, at::kFloat);
    for_each_run(part, {0, part.numel()}, [&](Range here, std::int64_t at) {
      out.narrow(0, here.begin, here.size()).copy_(model_.grads().narrow(0, begin + at, here.size()));
    });
    return out;
  }

 private:
  ParamLayout layout_;
  TinyGpt model_;
};

/// One rank of lesson 10 up to the end of backward.
class TensorRank {
 public:
  TensorRank(Communicator& comm, TokenShare tokens)
      : shape_{.workload = workload(),
               .mesh = Mesh(comm.size(), {{Axis::tensor, to_int(comm.size())}}),
               .rank = comm.rank()},
        layout_(tensor_layout(shape_)),
        parts_(shape_, layout_, PartSizes(shape_, layout_, tokens)),
        activations_(shape_, parts_.sizes(), /*kept=*/false, ledger_),
        lane_(parts_, comm, shape_.workload.activations, /*kept=*/false, activations_) {
    const std::int64_t size = layout_.arena_size().value();
    params_ = at::zeros({size}, at::kFloat), grads_ = at::zeros({size}, at::kFloat);
    param_units_ = unit_views_of_both(layout_, params_), grad_units_ = unit_views_of_both(layout_, grads_);
    for (int unit = 0; unit < layout_.num_units(); ++unit)
      init_unit(layout_, unit, kSeed, param_units_[unit]);
    lane_.use(param_units_, grad_units_);
    lane_.begin(activations_, 1, layout_.num_blocks());
  }
  void backward(std::int64_t step) {
    Write write = Write::overwrite;
    at::Tensor sums = at::zeros({4}, at::kDouble);
    for (const Batch& batch : batches_of(step)) {
      lane_.embed(batch.tokens);
      lane_.end_embedding();
      for (int unit = 1; unit <= layout_.num_blocks(); ++unit) {
        lane_.first_product(unit, Half::attention);
        lane_.second_product(unit, Half::attention);
        lane_.end_attention(unit);
        lane_.first_product(unit, Half::mlp);
        lane_.second_product(unit, Half::mlp);
        lane_.end_block(unit);
      }
      lane_.head(batch.targets, batch.scale, write, sums);
      lane_.head_backward(write);
      for (int unit = layout_.num_blocks(); unit >= 1; --unit) backward_block(unit, write);
      lane_.embed_backward(batch.tokens, Write::accumulate, write);
      write = Write::accumulate;
    }
  }
  /// Calls f(unit, tensor, its gradient), in the order of the units.
  template <class F>
  void for_each_gradient(const F& f) {
    for (int unit = 0; unit < layout_.num_units(); ++unit)
      for (const ParamTensor& t : layout_.unit(unit).tensors)
        f(unit, t,
          grad_units_[static_cast<std::size_t>(unit)].segment(t.segment).narrow(0, t.offset, t.numel()));
  }

 private:
  void backward_block(int unit, Write write) {
    lane_.recompute(unit);
    for (const Half half : {Half::mlp, Half::attention}) {
      lane_.backward_to_norm(unit, half);
      lane_.second_weights(unit, half, write);
      lane_.backward_of_norm(unit, half);
      lane_.first_weights(unit, half, write);
    }
    lane_.vectors(unit, write);
  }

  RunShape shape_;
  Ledger ledger_{at::kCPU};
  ParamLayout layout_;
  GptParts parts_;
  PartBuffers activations_;
  TensorLane lane_;
  at::Tensor params_, grads_;
  std::vector<UnitTensors> param_units_, grad_units_;
};

/// A gradient before and after the learner's code, and in `whole` lesson 00's, which it must equal.
struct Judged {
  std::string name;
  bool cut = false;
  at::Tensor before, after, whole;
};
using OfRank = std::vector<Judged>;

bool close(const at::Tensor& found, const at::Tensor& wanted) {
  const float* a = found.const_data_ptr<float>();
  const float* b = wanted.const_data_ptr<float>();
  float largest = 0, apart = 0;
  for (std::int64_t i = 0; i < wanted.numel(); ++i) {
    if (!(std::abs(a[i] - b[i]) >= 0)) return false;  // no number
    largest = std::max(largest, std::abs(b[i])), apart = std::max(apart, std::abs(a[i] - b[i]));
  }
  return apart <= 1e-4F * largest;
}
bool equal(const at::Tensor& a, const at::Tensor& b) {
  return std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

std::string what_is_wrong(const Judged& g, TokenShare tokens, int ranks) {
  const std::string times = std::to_string(ranks);
  if (g.cut)
    return g.name +
           " is cut: this rank's elements are no other's, and have met all tokens. They must stay as "
           "backward left "
           "them";
  if (equal(g.after, g.before))
    return g.name +
           " is on every rank, and each has the gradient of its own tokens only. It was not summed, or the "
           "sum is not "
           "in `values`";
  if (tokens == TokenShare::whole && close(g.after, g.whole.mul(ranks)))
    return g.name + " is the same on every rank, which has seen all tokens: a sum counts them " + times +
           " times";
  return g.name + " is neither what backward left nor the sum of that over ranks, once";
}

OfRank run_step(TensorRank& rank, std::int64_t step, TokenShare tokens, RecordingCommunicator& comm) {
  comm.set_phase("setup");
  rank.backward(step);
  comm.set_phase("train");
  OneDevice reference(step);
  OfRank judged;
  std::vector<NamedGradient> gradients;
  rank.for_each_gradient([&](int unit, const ParamTensor& t, const at::Tensor& values) {
    gradients.push_back({t.name, values});
    judged.push_back({t.name, t.is_cut(), values.clone(), values, reference.part_of(unit, t)});
  });
  sum_gradients(gradients, tokens, comm);
  for (Judged& g : judged) g.after = g.after.clone();
  return judged;
}

void check_messages(const World& world, int rank, std::int64_t needed, const std::string& where) {
  std::int64_t elements = 0, operations = 0;
  for (const auto& [op, count] : world.issued(rank).count) {
    require(op.kind == CommKind::all_reduce, where + "an " + describe(op) + "; all_reduce is what adds");
    elements += op.elements.value() * count, operations += count;
  }
  elements /= kSteps;
  require(elements <= needed, where + "right, but " + std::to_string(elements) +
                                  " elements were summed per step; " + std::to_string(needed) + " need it");
  require(operations <= (needed > 0 ? kSteps : 0),
          where + "right, but with " + std::to_string(operations / kSteps) + " all_reduces per step, of " +
              std::to_string(elements) + " elements together; one is enough");
}

void check_world(int ranks, TokenShare tokens, bool delays) {
  World world(ranks, delays);
  const auto found = world.each([&](RecordingCommunicator& comm) {
    TensorRank rank(comm, tokens);
    std::vector<OfRank> steps;
    for (std::int64_t step = 0; step < kSteps; ++step) steps.push_back(run_step(rank, step, tokens, comm));
    return steps;
  });
  for (int r = 0; r < ranks; ++r) {
    const std::string where = std::to_string(ranks) +
                              " ranks, tokens=" + (tokens == TokenShare::split ? "split" : "whole") +
                              (delays ? ", with random delays" : "") + ", rank " + std::to_string(r) + ": ";
    std::int64_t needed = 0;
    for (std::size_t step = 0; step < kSteps; ++step) {
      needed = 0;
      const OfRank &mine = found[static_cast<std::size_t>(r)][step], &first = found[0][step];
      for (std::size_t i = 0; i < mine.size(); ++i) {
        const Judged& g = mine[i];
        if (!close(g.after, g.whole) || (g.cut && !equal(g.after, g.before)))
          throw NotReached(where + what_is_wrong(g, tokens, ranks));
        require(g.cut || equal(g.after, first[i].after),
                where + g.name + " is not to the bit what rank 0 has");
        if (!g.cut && tokens == TokenShare::split) needed += g.after.numel();
      }
    }
    check_messages(world, r, needed, where);
  }
}

std::string check() {
  for (const int ranks : {2, 3})
    for (const TokenShare tokens : {TokenShare::split, TokenShare::whole}) check_world(ranks, tokens, false);
  check_world(2, TokenShare::split, true);
  return "2 and 3 ranks, two steps: every gradient is lesson 00's, equal on all ranks that share it; one "
         "all_reduce per step "
         "with tokens=split, none with whole";
}

}  // namespace

const Exercise kExercise{"who_is_summed",
                         "two questions of each tensor: is it cut? If not, which tokens has this rank "
                         "seen where its gradient is made? Biases of "
                         "c_attn and c_fc belong to columns of a part, those of c_proj are added behind "
                         "the sum; at::cat makes one piece of many",
                         check};

}  // namespace sc::exercise
