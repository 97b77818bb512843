// Interface probes, deleted when lessons 07 and 08 exist: a 2-stage 1F1B step, and 2 stages with stashed
// weights, on the real interfaces.
#include "common/model/unit_views.h"
#include "common/optim/grad_norm.h"
#include "lessons/00_one_device/reference_order.h"
#include "tests/support/harness.h"

namespace sc {
namespace {

// One stage's part of the model: units [first, last], activations of `slots` micro-batches, and on the last
// stage its own copy of the tied matrix.
struct Stage {
  Stage(const RunShape& shape, Ledger& ledger, int rank, int slots)
      : layout(shape.workload.model, WorldSize{1}),
        gpt(shape_of(shape), layout),
        first(rank == 0 ? 0 : layout.num_blocks() / 2 + 1),
        last(rank == 0 ? layout.num_blocks() / 2 : layout.last_unit()) {
    const auto arena = [&](Purpose p) {
      return ledger.zeros(p, "stage", {layout.arena_size().value()}, DType::f32);
    };
    params = unit_views(layout, arena(Purpose::parameters));
    grads = unit_views(layout, arena(Purpose::gradients));
    m = unit_views(layout, arena(Purpose::momentum));
    v = unit_views(layout, arena(Purpose::variance));
    for (int unit = 0; unit < layout.num_units(); ++unit)
      init_unit(layout, unit, shape.workload.seed, params[unit]);
    for (int slot = 0; slot < slots; ++slot)
      buffers.push_back(std::make_unique<ActivationBuffers>(gpt, ledger));
  }
  [[nodiscard]] bool is_first() const { return first == 0; }

  // The stage's input is buffers[slot]->x[first - 1] (blocks) or tokens; its output x[last] or the loss.
  void forward(const std::vector<UnitTensors>& w, const Batch& batch, int slot) {
    ActivationBuffers& b = *buffers[slot];
    if (is_first()) gpt.embed(w[0], batch.tokens, b.x[0]);
    for (int unit = std::max(1, first); unit <= std::min(last, layout.num_blocks()); ++unit) {
      gpt.forward_block(unit, w[unit], b.x[unit - 1], b.saved[unit - 1], b.ws, b.x[unit]);
    }
  }
  void backward(const std::vector<UnitTensors>& w, const Batch& batch, int slot, Write write) {
    ActivationBuffers& b = *buffers[slot];
    const int L = layout.num_blocks();
    if (!is_first()) {
      at::Tensor grad_head = gpt.head_matrix(grads[0]);  // this stage's copy: it has no embedding
      gpt.head(gpt.head_matrix(w[0]), w[L + 1], b.x[L], batch.targets, batch.scale, b.grad_x[L % 2],
               grad_head, grads[L + 1], write, b.ws, b.result);
    }
    for (int unit = std::min(last, L); unit >= std::max(1, first); --unit) {
      gpt.backward_input(unit, w[unit], b.saved[unit - 1], b.grad_x[unit % 2], b.ws,
                         b.grad_x[(unit - 1) % 2]);
      gpt.backward_weights(unit, b.saved[unit - 1], b.ws, grads[unit], write);
    }
    if (is_first()) gpt.embed_backward(batch.tokens, b.grad_x[0], grads[0], write, write);
  }
  void update(const OptimConfig& optim, const StepScalars& scalars) {
    for (int unit = 0; unit < layout.num_units(); ++unit) {
      if (unit != 0 && (unit < first || unit > last)) continue;  // unit 0: both stages hold the tied matrix
      const std::int64_t n = layout.unit(unit).sharded_size;
      adamw_step(hyper_of(optim), scalars, layout.decay_ranges(unit, Segment::sharded, {0, n}),
                 grads[unit].sharded, params[unit].sharded, m[unit].sharded, v[unit].sharded, nullptr);
    }
  }

  ParamLayout layout;
  Gpt gpt;
  int first, last;
  std::vector<UnitTensors> params, grads, m, v;
  std::vector<std::unique_ptr<ActivationBuffers>> buffers;
};

void on_two_ranks(const std::function<void(Communicator&, int)>& body) {
  LocalWorld world(2);
  std::vector<std::jthread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      c10::InferenceMode inference;
      at::set_num_threads(1);
      auto comm = world.communicator(Rank{r});
      body(*comm, r);
    });
  }
}

TEST(PipelineProbe, OneForwardOneBackwardEqualsOneDeviceWithSplitTiedSum) {
  Workload w = test::odd_workload();
  w.model.layers = 4;
  w.batch.global = 5;
  constexpr int kSteps = 3;
  const auto expected = test::run_local<ReferenceOrder>(1, w, {.tied_sum = TiedSum::split}, kSteps).at(0);
  on_two_ranks([&](Communicator& comm, int rank) {
    Ledger ledger(at::kCPU);
    const RunShape shape = test::shape_for(w, 2, rank, CommBackend::local);
    Stage stage(shape, ledger, rank, 2 - rank);
    const int micro = static_cast<int>(w.batch.global), boundary = stage.layout.num_blocks() / 2;
    at::Tensor sums = ledger.zeros(Purpose::workspace, "sums", {4}, DType::f64);
    std::vector<Ticket> sent(
        2);  // what travels while this stage goes on: nobody touches it before its ticket
    for (int step = 0; step < kSteps; ++step) {
      const auto forward = [&](int j) {
        if (rank == 0) sent[j % 2].wait();
        ActivationBuffers& b = *stage.buffers[j % (2 - rank)];
        if (rank == 1) comm.recv(b.x[boundary], Rank{0}).wait();
        stage.forward(stage.params, test::made_up_batch(w, step, j), j % (2 - rank));
        if (rank == 0) sent[j % 2] = comm.send(b.x[boundary], Rank{1});
      };
      const auto backward = [&](int j) {
        if (rank == 1) sent[0].wait();
        at::Tensor& grad = stage.buffers[j % (2 - rank)]->grad_x[boundary % 2];
        if (rank == 0) comm.recv(grad, Rank{1}).wait();
        stage.backward(stage.params, test::made_up_batch(w, step, j), j % (2 - rank),
                       j == 0 ? Write::overwrite : Write::accumulate);
        if (rank == 1) sent[0] = comm.send(grad, Rank{0});
      };
      for (auto& b : stage.buffers) b->sums.zero_();
      forward(0);  // rank 0: F0 F1 B0 F2 B1 ...; rank 1: F0 B0 F1 B1 ...
      for (int j = 0; j < micro; ++j) {
        if (rank == 0 && j + 1 < micro) forward(j + 1);
        backward(j);
        if (rank == 1 && j + 1 < micro) forward(j + 1);
      }
      for (Ticket& ticket : sent) ticket.wait();
      at::Tensor wte = stage.gpt.head_matrix(stage.grads[0]);
      comm.all_reduce(wte).wait();  // the embedding's part and the head's part meet
      sums.zero_();
      for (int unit = stage.first; unit <= stage.last; ++unit)
        add_sums_of_squares({&stage.grads[unit].sharded, 1}, sums);
      finish_sums(sums);
      comm.all_reduce(sums).wait();
      const StepScalars scalars = test::step_scalars(learning_rate(w.optim, step, w.steps), step);
      global_norm_and_clip(sums, w.optim.clip, scalars);
      stage.update(w.optim, scalars);
    }
    test::RankResult mine;
    for (int unit = stage.first; unit <= stage.last; ++unit) {
      const std::int64_t n = stage.layout.unit(unit).sharded_size;
      mine.state.push_back({Purpose::parameters, unit, Segment::sharded, {0, n}, stage.params[unit].sharded});
      mine.state.push_back({Purpose::variance, unit, Segment::sharded, {0, n}, stage.v[unit].sharded});
    }
    EXPECT_TRUE(test::bit_equal(mine, expected)) << "stage " << rank;
  });
}

// PipeDream on two stages: every micro-batch is an update; stage 0's backward uses the weights its forward
// used, one update old. Source of the rule: arXiv:1806.03377, section 3.4: w(t+1) = w(t) - v grad f(w_1(t-1),
// w_2(t)).
TEST(PipelineProbe, StashedWeightsFollowTheRule) {
  Workload w = test::odd_workload();
  w.model.layers = 4;
  w.model.tied = false;
  w.batch.global = 1;
  constexpr int kUpdates = 5;
  const auto copy_of = [](const std::vector<UnitTensors>& from) {
    std::vector<UnitTensors> to;
    for (const UnitTensors& u : from) to.push_back({u.sharded.clone(), {}});
    return to;
  };
  const auto untied_backward = [&](Stage& s, const std::vector<UnitTensors>& weights, const Batch& batch,
                                   int slot) {
    ActivationBuffers& b = *s.buffers[slot];
    const int L = s.layout.num_blocks();
    if (!s.is_first()) {
      at::Tensor grad_head = s.gpt.head_matrix(s.grads[L + 1]);
      s.gpt.head(s.gpt.head_matrix(weights[L + 1]), weights[L + 1], b.x[L], batch.targets, batch.scale,
                 b.grad_x[L % 2], grad_head, s.grads[L + 1], Write::overwrite, b.ws, b.result);
    }
    for (int unit = std::min(s.last, L); unit >= std::max(1, s.first); --unit) {
      s.gpt.backward_input(unit, weights[unit], b.saved[unit - 1], b.grad_x[unit % 2], b.ws,
                           b.grad_x[(unit - 1) % 2]);
      s.gpt.backward_weights(unit, b.saved[unit - 1], b.ws, s.grads[unit], Write::overwrite);
    }
    if (s.is_first())
      s.gpt.embed_backward(batch.tokens, b.grad_x[0], s.grads[0], Write::overwrite, Write::overwrite);
  };

  // The rule, on one thread: stage 0 runs with its weights of one update before (update 0 with the first).
  c10::InferenceMode inference;
  at::set_num_threads(1);
  Ledger reference_ledger(at::kCPU);
  const RunShape shape0 = test::shape_for(w, 2, 0, CommBackend::local);
  Stage one(shape0, reference_ledger, 0, 1), two(shape0, reference_ledger, 1, 1);
  const int boundary = one.layout.num_blocks() / 2;
  std::vector<UnitTensors> before = copy_of(one.params);
  for (int t = 0; t < kUpdates; ++t) {
    const Batch batch = test::made_up_batch(w, t, 0);
    const std::vector<UnitTensors> used = t == 0 ? copy_of(one.params) : before;
    before = copy_of(one.params);
    one.forward(used, batch, 0);
    two.buffers[0]->x[boundary].copy_(one.buffers[0]->x[boundary]);
    two.forward(two.params, batch, 0);
    untied_backward(two, two.params, batch, 0);
    one.buffers[0]->grad_x[boundary % 2].copy_(two.buffers[0]->grad_x[boundary % 2]);
    untied_backward(one, used, batch, 0);
    one.update(w.optim, test::step_scalars(1e-2, t + 1));
    two.update(w.optim, test::step_scalars(1e-2, t + 1));
  }

  on_two_ranks([&](Communicator& comm, int rank) {
    Ledger ledger(at::kCPU);
    Stage stage(test::shape_for(w, 2, rank, CommBackend::local), ledger, rank, 2 - rank);
    std::vector<std::vector<UnitTensors>> stash(
        static_cast<std::size_t>(2 - rank));  // S - s versions on stage s
    const int slots = 2 - rank;
    std::vector<Ticket> sent(2);
    const auto forward = [&](int t) {
      if (rank == 0) sent[t % 2].wait();
      stash[t % slots] = copy_of(stage.params);
      ActivationBuffers& b = *stage.buffers[t % slots];
      if (rank == 1) comm.recv(b.x[boundary], Rank{0}).wait();
      stage.forward(stash[t % slots], test::made_up_batch(w, t, 0), t % slots);
      if (rank == 0) sent[t % 2] = comm.send(b.x[boundary], Rank{1});
    };
    const auto backward = [&](int t) {
      if (rank == 1) sent[0].wait();
      at::Tensor& grad = stage.buffers[t % slots]->grad_x[boundary % 2];
      if (rank == 0) comm.recv(grad, Rank{1}).wait();
      untied_backward(stage, stash[t % slots], test::made_up_batch(w, t, 0), t % slots);
      if (rank == 1) sent[0] = comm.send(grad, Rank{0});
      stage.update(w.optim, test::step_scalars(1e-2, t + 1));
    };
    forward(0);
    for (int t = 0; t < kUpdates; ++t) {
      if (rank == 0 && t + 1 < kUpdates) forward(t + 1);
      backward(t);
      if (rank == 1 && t + 1 < kUpdates) forward(t + 1);
    }
    for (Ticket& ticket : sent) ticket.wait();
    const Stage& want = rank == 0 ? one : two;
    for (int unit = stage.first; unit <= stage.last; ++unit) {
      EXPECT_EQ(std::memcmp(want.params[unit].sharded.const_data_ptr(),
                            stage.params[unit].sharded.const_data_ptr(), stage.params[unit].sharded.nbytes()),
                0)
          << "stage " << rank << " unit " << unit;
    }
  });
}

}  // namespace
}  // namespace sc
