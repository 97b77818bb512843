// Interface probe, deleted when lessons 07 and 08 exist: a 2-stage 1F1B step as a strategy like any other, and
// 2 stages with stashed weights.
#include "common/model/unit_views.h"
#include "common/optim/grad_norm.h"
#include "common/strategy/owned_slice.h"
#include "common/strategy/passes.h"
#include "lessons/00_one_device/reference_order.h"
#include "tests/support/harness.h"

namespace sc {
namespace {

/// Half of the blocks on each of two stages; the embedding on the first one, head and norm on the last.
struct Cut {
  explicit Cut(const RunShape& shape)
      : stage(static_cast<int>(stage_of(shape))),
        layout(shape.workload.model, WorldSize{1}),
        boundary(layout.num_blocks() / 2),
        first(stage == 0 ? 0 : boundary + 1),
        last(stage == 0 ? boundary : layout.last_unit()),
        tied(stage == 1 && shape.workload.model.tied
                 ? shape.workload.model.vocab_padded() * shape.workload.model.width
                 : 0),
        elements(elements_of(layout, first, last) + Elements(tied)) {}
  [[nodiscard]] BufferShape buffers(int sets) const {
    return {.first = std::max(1, first),
            .blocks = stage == 0 ? boundary : layout.num_blocks() - boundary,
            .sets = sets,
            .head = stage == 1,
            .inputs = sets};
  }
  int stage;
  ParamLayout layout;
  int boundary, first, last;
  std::int64_t tied;  // elements of the last stage's own copy of the tied matrix
  Elements elements;  // of all vectors of this stage: its units, then the copy
};

/// One stage: its vectors, unit by unit, with the tied copy as unit 0 of the last stage.
struct Stage {
  Stage(const RunContext& context, int sets)
      : cut(context.shape), passes(context, cut.layout, cut.buffers(sets)) {
    const auto arena = [&](Purpose p, const char* name) {
      return context.ledger.zeros(p, name, {cut.elements.value()}, DType::f32);
    };
    const at::Tensor p = arena(Purpose::parameters, "params"), g = arena(Purpose::gradients, "grads"),
                     m = arena(Purpose::momentum, "m"), v = arena(Purpose::variance, "v");
    params = units_of(p);
    grads = units_of(g);
    const std::vector<UnitTensors> ms = units_of(m), vs = units_of(v);
    for (int unit = 0; unit < cut.layout.num_units(); ++unit) {
      const auto u = static_cast<std::size_t>(unit);
      if (!params[u].sharded.defined()) continue;
      OwnedSlice slice{.unit = unit, .range = {0, params[u].sharded.numel()}};
      slice.params = slice.master = params[u].sharded;
      slice.grads = grads[u].sharded;
      slice.momentum = ms[u].sharded;
      slice.variance = vs[u].sharded;
      init_slice(cut.layout, unit, Segment::sharded, slice.range, context.shape.workload.seed, slice.params);
      slices.push_back(std::move(slice));
    }
  }
  std::vector<UnitTensors> units_of(const at::Tensor& arena) const {
    std::vector<UnitTensors> units = unit_views(cut.layout, cut.first, cut.last, arena);
    if (cut.tied > 0) units[0].sharded = arena.narrow(0, arena.numel() - cut.tied, cut.tied);
    return units;
  }
  [[nodiscard]] bool is_first() const { return cut.stage == 0; }
  [[nodiscard]] int last_block() const { return std::min(cut.last, cut.layout.num_blocks()); }
  at::Tensor& boundary_x(int set) { return passes.buffers().x(cut.boundary, set); }
  at::Tensor& boundary_grad() { return passes.buffers().grad_x[cut.boundary % 2]; }

  void forward(std::span<const UnitTensors> w, const Batch& batch, int set) {
    for (int unit = cut.first; unit <= last_block(); ++unit) passes.forward(unit, batch, w[unit], set);
  }
  void backward(std::span<const UnitTensors> w, const Batch& batch, int set, Write write) {
    if (!is_first()) passes.head(batch, w, grads, write, sums, set);
    for (int unit = last_block(); unit >= std::max(1, cut.first); --unit) {
      passes.backward_input(unit, w[unit], set);
      passes.backward_weights(unit, grads[unit], write, set);
    }
    if (is_first()) passes.embed_backward_alone(batch, grads[0], write);
  }
  void update(const OptimConfig& optim, const StepScalars& scalars) {
    for (OwnedSlice& s : slices)
      adamw_step(hyper_of(optim), scalars, cut.layout.decay_ranges(s.unit, s.segment, s.range), s.grads,
                 s.master, s.momentum, s.variance, nullptr);
  }

  Cut cut;
  Passes passes;
  at::Tensor sums = passes.sums();
  std::vector<UnitTensors> params, grads;  // by unit; undefined where this stage has none
  std::vector<OwnedSlice> slices;
};

struct PipelineProbe {
  struct Options {};
  static Division division(const Options&, WorldSize) { return {.stages = 2}; }
  static int sets_of(const RunShape& shape) { return 2 - static_cast<int>(stage_of(shape)); }
  static MemoryPlan memory_plan(const RunShape& shape, const Options&) {
    const Cut cut(shape);
    MemoryPlan plan;
    for (const Purpose p : {Purpose::parameters, Purpose::gradients, Purpose::momentum, Purpose::variance})
      plan.add(p, "stage", "4 of this stage", bytes_of(cut.elements, DType::f32));
    plan_activation_buffers(shape, cut.buffers(sets_of(shape)), plan);
    return plan;
  }
  static CommPlan comm_plan(const RunShape& shape, const Options&) {
    const GptConfig& model = shape.workload.model;
    const BatchConfig& batch = shape.workload.batch;
    const Elements message(batch.micro * batch.sequence * model.width);
    CommPlan plan;
    plan.add(CommKind::send, DType::f32, message, shape.world, micro_batches_of(shape));
    plan.add(CommKind::recv, DType::f32, message, shape.world, micro_batches_of(shape));
    plan.add(CommKind::all_reduce, DType::f32, Elements(model.vocab_padded() * model.width), shape.world);
    plan.add(CommKind::all_reduce, DType::f64, Elements(4), shape.world);
    return plan;
  }

  PipelineProbe(RunContext& context, const Options&)
      : context_(context), stage_(context, sets_of(context.shape)), sets_(sets_of(context.shape)) {}

  // Stage 0: F0 F1 B0 F2 B1 ...; stage 1: F0 B0 F1 B1 ...
  StepResult train_step(std::span<const Batch> batches) {
    const int micro = static_cast<int>(batches.size());
    const bool first = stage_.is_first();
    std::vector<Ticket> sent(2);  // what travels while this stage goes on
    stage_.sums.zero_();
    const auto forward = [&](int j) {
      const auto mark = context_.timeline.mark("F" + std::to_string(j));
      if (first) sent[j % 2].wait();
      if (!first) context_.comm.recv(stage_.boundary_x(j % sets_), Rank{0}).wait();
      stage_.forward(stage_.params, batches[j], j % sets_);
      if (first) sent[j % 2] = context_.comm.send(stage_.boundary_x(j % sets_), Rank{1});
    };
    const auto backward = [&](int j) {
      const auto mark = context_.timeline.mark("B" + std::to_string(j));
      if (!first) sent[0].wait();
      if (first) context_.comm.recv(stage_.boundary_grad(), Rank{1}).wait();
      stage_.backward(stage_.params, batches[j], j % sets_, j == 0 ? Write::overwrite : Write::accumulate);
      if (!first) sent[0] = context_.comm.send(stage_.boundary_grad(), Rank{0});
    };
    forward(0);
    for (int j = 0; j < micro; ++j) {
      if (first && j + 1 < micro) forward(j + 1);
      backward(j);
      if (!first && j + 1 < micro) forward(j + 1);
    }
    for (Ticket& ticket : sent) ticket.wait();
    at::Tensor wte = stage_.passes.gpt().head_matrix(stage_.grads[0]);
    context_.comm.all_reduce(wte).wait();  // the embedding's part and the head's part meet
    for (const OwnedSlice& s : stage_.slices)
      if (first || s.unit != 0) add_sums_of_squares({&s.grads, 1}, stage_.sums);
    finish_sums(stage_.sums);
    context_.comm.all_reduce(stage_.sums).wait();
    global_norm_and_clip(stage_.sums, context_.shape.workload.optim.clip, context_.scalars);
    stage_.update(context_.shape.workload.optim, context_.scalars);
    return {stage_.sums, context_.scalars.grad_norm};
  }
  void quiet() {}
  void forward_loss(const Batch& batch, at::Tensor& sums) {
    if (!stage_.is_first()) context_.comm.recv(stage_.boundary_x(0), Rank{0}).wait();
    stage_.forward(stage_.params, batch, 0);
    if (stage_.is_first()) context_.comm.send(stage_.boundary_x(0), Rank{1}).wait();
    if (!stage_.is_first()) stage_.passes.head_loss(batch, stage_.params, sums);
  }
  at::Tensor& sums() { return stage_.sums; }
  std::vector<StateSlice> state() { return state_of(stage_.passes.last_local(), stage_.slices); }
  [[nodiscard]] const ParamLayout& layout() const { return stage_.cut.layout; }

 private:
  RunContext& context_;
  Stage stage_;
  int sets_;
};

Workload four_blocks(std::int64_t micro_batches) {
  Workload w = test::odd_workload();
  w.model.layers = 4;
  w.batch.global = micro_batches;
  return w;
}

TEST(PipelineProbe, OneForwardOneBackwardEqualsOneDeviceWithSplitTiedSum) {
  for (const std::int64_t micro : {1, 2, 5}) {
    const Workload w = four_blocks(micro);
    const auto expected = test::run_local<ReferenceOrder>(1, w, {.tied_sum = TiedSum::split}, 3).at(0);
    test::expect_equals_reference(test::run_local<PipelineProbe>(2, w, {}, 3), expected);
    test::expect_equals_reference(test::run_local<PipelineProbe>(2, w, {}, 3, test::delayed), expected);
  }
}

// PipeDream on two stages: every micro-batch is an update; stage 0's backward uses the weights its forward
// used, one update old. Source of the rule: arXiv:1806.03377, section 3.4: w(t+1) = w(t) - v grad f(w_1(t-1),
// w_2(t)).
class StashProbe {
 public:
  StashProbe(const Workload& w, Communicator& comm, int stage, int sets)
      : shape_(test::shape_for(w, 2, stage, CommBackend::local)),
        context_{shape_, comm, ledger_, scalars_, *beside_.copies, beside_.timeline} {
    shape_.stages = 2;
    stage_.emplace(context_, sets);
  }
  Stage& stage() { return *stage_; }
  void update(std::int64_t t) { stage_->update(shape_.workload.optim, test::step_scalars(1e-2, t + 1)); }

 private:
  RunShape shape_;
  Ledger ledger_{at::kCPU};
  StepScalars scalars_ = test::step_scalars(1e-2, 0);
  test::Beside beside_;
  RunContext context_;
  std::optional<Stage> stage_;
};

std::vector<UnitTensors> copy_of(const std::vector<UnitTensors>& from) {
  std::vector<UnitTensors> to;
  for (const UnitTensors& u : from)
    to.push_back({u.sharded.defined() ? u.sharded.clone() : at::Tensor(), {}});
  return to;
}

TEST(PipelineProbe, StashedWeightsFollowTheRule) {
  Workload w = four_blocks(1);
  w.model.tied = false;
  constexpr int kUpdates = 5;

  // The rule, on one thread: stage 0 runs with its weights of one update before (update 0 with the first).
  c10::InferenceMode inference;
  at::set_num_threads(1);
  const std::unique_ptr<Communicator> alone = LocalWorld(1).communicator(Rank{0});
  StashProbe one(w, *alone, 0, 1), two(w, *alone, 1, 1);
  std::vector<UnitTensors> before = copy_of(one.stage().params);
  for (int t = 0; t < kUpdates; ++t) {
    const Batch batch = test::made_up_batch(w, t, 0);
    const std::vector<UnitTensors> used = t == 0 ? copy_of(one.stage().params) : before;
    before = copy_of(one.stage().params);
    one.stage().forward(used, batch, 0);
    two.stage().boundary_x(0).copy_(one.stage().boundary_x(0));
    two.stage().forward(two.stage().params, batch, 0);
    two.stage().backward(two.stage().params, batch, 0, Write::overwrite);
    one.stage().boundary_grad().copy_(two.stage().boundary_grad());
    one.stage().backward(used, batch, 0, Write::overwrite);
    one.update(t);
    two.update(t);
  }

  LocalWorld world(2);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      c10::InferenceMode inference_too;
      at::set_num_threads(1);
      const std::unique_ptr<Communicator> comm = world.communicator(Rank{rank});
      const int sets = 2 - rank;  // and as many versions: S - s on stage s
      StashProbe mine(w, *comm, rank, sets);
      Stage& stage = mine.stage();
      std::vector<std::vector<UnitTensors>> stash(static_cast<std::size_t>(sets));
      std::vector<Ticket> sent(2);
      const auto forward = [&](int t) {
        if (rank == 0) sent[t % 2].wait();
        stash[t % sets] = copy_of(stage.params);
        if (rank == 1) comm->recv(stage.boundary_x(t % sets), Rank{0}).wait();
        stage.forward(stash[t % sets], test::made_up_batch(w, t, 0), t % sets);
        if (rank == 0) sent[t % 2] = comm->send(stage.boundary_x(t % sets), Rank{1});
      };
      const auto backward = [&](int t) {
        if (rank == 1) sent[0].wait();
        if (rank == 0) comm->recv(stage.boundary_grad(), Rank{1}).wait();
        stage.backward(stash[t % sets], test::made_up_batch(w, t, 0), t % sets, Write::overwrite);
        if (rank == 1) sent[0] = comm->send(stage.boundary_grad(), Rank{0});
        mine.update(t);
      };
      forward(0);
      for (int t = 0; t < kUpdates; ++t) {
        if (rank == 0 && t + 1 < kUpdates) forward(t + 1);
        backward(t);
        if (rank == 1 && t + 1 < kUpdates) forward(t + 1);
      }
      for (Ticket& ticket : sent) ticket.wait();
      const Stage& want = rank == 0 ? one.stage() : two.stage();
      for (std::size_t i = 0; i < want.slices.size(); ++i) {
        const at::Tensor &a = want.slices[i].params, &b = stage.slices[i].params;
        EXPECT_EQ(std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()), 0)
            << "stage " << rank << " unit " << want.slices[i].unit;
      }
    });
  }
}

}  // namespace
}  // namespace sc
