// Tests lesson 05 against lesson 00 in lesson 04's order of sums: the same bits wherever states lie; and
// delayed updates against their direct computation.
#include "lessons/05_offload/offload.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <thread>

#include "common/comm/forwarding_communicator.h"
#include "common/model/unit_views.h"
#include "lessons/reference/reference_order.h"
#include "tests/lessons/offload_support.h"
#include "tests/support/answers.h"
#include "tests/support/harness.h"
#include "tests/support/no_plans.h"
#include "tests/support/pairwise.h"

namespace sc {
namespace {

using test::kOffloadSteps, test::offloaded_reference, test::offloaded_workload;

void expect_offload_equals(const test::RankResult& expected, int world, const Workload& w,
                           const OffloadOptions& options, const test::Wrap& wrap = {}) {
  SCOPED_TRACE(std::to_string(world) + " ranks, pieces of " + std::to_string(options.piece) + ", " +
               (options.parameters == ParametersOn::whole ? "whole" : "sharded"));
  test::expect_equals_reference(test::run_local<Offload>(world, w, options, kOffloadSteps, wrap), expected);
}

constexpr ParametersOn kParameters[] = {ParametersOn::whole, ParametersOn::sharded};

/// Expects the same bits with parameters on every rank, and with parameters in slices.
void expect_both_equal(const test::RankResult& expected, int world, const Workload& w, OffloadOptions options,
                       const test::Wrap& wrap = {}) {
  for (const ParametersOn parameters : kParameters) {
    options.parameters = parameters;
    expect_offload_equals(expected, world, w, options, wrap);
  }
}

class OffloadWorlds : public ::testing::TestWithParam<int> {};

TEST_P(OffloadWorlds, ExactUpdatesEndInTheSameBits) {
  const int world = GetParam();
  for (const std::int64_t micro : {1, 3}) {
    const Workload w = offloaded_workload(micro, world);
    const test::RankResult expected = offloaded_reference(w, world);
    for (const std::int64_t piece : {64, 999, 4'000'000})
      expect_both_equal(expected, world, w, {{.piece = piece}});
  }
}
INSTANTIATE_TEST_SUITE_P(Worlds, OffloadWorlds, ::testing::Values(1, 2, 3));

TEST(Offload, ThreadsPrefetchAndOverlapChangeNoBit) {
  const Workload w = offloaded_workload(3, 2);
  const test::RankResult expected = offloaded_reference(w, 2);
  for (const ParametersOn parameters : kParameters) {
    for (const std::int64_t threads : {1, 2, 5})
      expect_offload_equals(expected, 2, w,
                            {{.parameters = parameters, .piece = 200, .adam_threads = threads}});
    for (const std::int64_t prefetch : {0, 2, 9})
      expect_offload_equals(expected, 2, w, {{.parameters = parameters, .piece = 500, .prefetch = prefetch}});
    expect_offload_equals(expected, 2, w, {{.parameters = parameters}, false});
  }
}

TEST(Offload, EveryModelEndsInTheSameBits) {
  test::for_each_model([](const Workload& w) {
    const test::RankResult expected = offloaded_reference(w, 2);
    expect_both_equal(expected, 2, w, {{.piece = 700}});
  });
}

TEST(Offload, AClipThatAlwaysActs) {
  Workload w = offloaded_workload(3, 2);
  w.optim.clip = 1e-3;
  const test::RankResult expected = offloaded_reference(w, 2);
  expect_both_equal(expected, 2, w, {{.piece = 300}});
}

TEST(Offload, SixteenBitsBesideFp32) {
  for (const DType grad : {DType::f32, DType::bf16}) {
    Workload w = offloaded_workload(3, 2);
    w.precision = {.dtype = DType::bf16, .grad_dtype = grad, .reduce_dtype = grad};
    const test::RankResult expected = offloaded_reference(w, 2);
    expect_both_equal(expected, 2, w, {{.piece = 300}});
  }
}

// The units whose states stay on the device are the embedding, then blocks too, then all but the head.
TEST_P(OffloadWorlds, ResidentUnitsEndInTheSameBits) {
  const int world = GetParam();
  for (const std::int64_t micro : {1, 3}) {
    Workload w = offloaded_workload(micro, world);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      w.precision.dtype = dtype;
      const test::RankResult expected = offloaded_reference(w, world);
      for (const std::int64_t resident : {1, 3, 4})
        expect_both_equal(expected, world, w, {{.resident = resident, .piece = 300}});
      expect_offload_equals(expected, world, w, {{.resident = 2, .piece = 600}}, test::delayed);
    }
  }
}

TEST(Offload, EveryUnitsUpdateIsMarked) {
  OffloadOptions options;
  options.resident = 3;
  std::vector<int> units =
      test::units_updated(test::run_local<Offload>(2, offloaded_workload(1, 2), options, 2)[1]);
  std::ranges::sort(units);  // the host's may end in any order
  EXPECT_EQ(units, (std::vector{0, 1, 2, 3, 4}));
}

TEST(Offload, ResidentUnitsAreClippedAndRecomputed) {
  test::for_each_model([](Workload w) {
    for (const double clip : {1e-3, 0.0}) {
      w.optim.clip = clip;
      const test::RankResult expected = offloaded_reference(w, 2);
      expect_offload_equals(expected, 2, w, {{.resident = 2, .piece = 700}});
    }
  });
}

// Without clipping the host needs no norm.
TEST_P(OffloadWorlds, UpdatesWithoutANormEndInTheSameBits) {
  const int world = GetParam();
  for (const std::int64_t micro : {1, 3}) {
    Workload w = offloaded_workload(micro, world);
    w.optim.clip = 0;
    const test::RankResult expected = offloaded_reference(w, world);
    for (const ParametersOn parameters : kParameters) {
      expect_offload_equals(expected, world, w, {{.parameters = parameters, .piece = 300}});
      expect_offload_equals(expected, world, w, {{.parameters = parameters, .piece = 300}}, test::delayed);
    }
    expect_offload_equals(expected, world, w, {{.piece = 300}, false});
  }
}

// Updates begin before the norm is known, and are repeated if it clips.
TEST_P(OffloadWorlds, EarlyUpdatesEndInTheSameBits) {
  const int world = GetParam();
  test::Lot lot(world - 1, 3);
  for (const std::int64_t micro : {1, 3}) {
    Workload w = offloaded_workload(micro, world);
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      w.precision.dtype = dtype;
      w.optim.clip = 0;
      const std::vector<double> norms = offloaded_reference(w, world).norms;
      const auto [least, most] = std::ranges::minmax(norms);
      for (const double clip : {1e-3, (least + most) / 2, 0.0}) {  // always, now and then, never
        w.optim.clip = clip;
        const test::RankResult expected = offloaded_reference(w, world);
        for (const ParametersOn parameters : kParameters)
          for (const std::int64_t resident : {0, 2})
            if (lot.draws())
              expect_offload_equals(expected, world, w,
                                    {{.parameters = parameters,
                                      .update = UpdateKind::early,
                                      .resident = resident,
                                      .piece = 300}});
        if (lot.draws())
          expect_offload_equals(expected, world, w, {{.update = UpdateKind::early, .piece = 600}},
                                test::delayed);
        if (lot.draws())
          expect_offload_equals(expected, world, w, {{.update = UpdateKind::early, .piece = 600}, false});
      }
    }
  }
}

// A guess that is never right makes every piece twice, and no bit shows it.
TEST(Offload, AGuessIsWhatAGoodStepSays) {
  const c10::InferenceMode inference;
  LocalWorld world(1);
  const std::unique_ptr<Communicator> comm = world.communicator(Rank{0});
  const RunShape shape = test::shape_for(offloaded_workload(1, 1), 1, 0, CommBackend::local);
  for (const bool scaled : {false, true}) {
    Ledger ledger(at::kCPU);
    test::Beside beside;
    const StepScalars scalars = test::step_scalars(0.01, 4, scaled);
    RunContext context{shape, *comm, ledger, scalars, *beside.copies, beside.timeline};
    UpdateScalars sent(at::zeros({4}, at::kDouble), at::zeros({16}, at::kDouble));
    const LandedScalars guess = sent.send_guess(context, 0);
    at::Tensor sums = at::full({4}, 1e-3, at::kDouble);
    sums.select(0, kNonFinite).zero_();
    global_norm_and_clip(sums, 0, scalars);
    const LandedScalars truth = sent.send(context, 0);
    sent.wait_sent();
    for (const int i : {0, 1, 2}) EXPECT_EQ(guess.numbers[i], truth.numbers[i]) << i;
    EXPECT_EQ(guess.numbers[1], 5);
  }
}

/// Calls `at_norm` before the step's numbers are summed.
class AtTheNorm final : public ForwardingCommunicator {
 public:
  AtTheNorm(Communicator& inner, std::function<void()> at_norm)
      : ForwardingCommunicator(inner), at_norm_(std::move(at_norm)) {}
  Ticket issue(const Operation& op, const at::Tensor& from, const at::Tensor& to,
               std::optional<Rank> peer) override {
    if (op.purpose == OpPurpose::sums) at_norm_();
    return ForwardingCommunicator::issue(op, from, to, peer);
  }

 private:
  const std::function<void()> at_norm_;
};

/// How many pieces of a step the host has updated by the time its norm is known, for which it gets
/// `patience`.
std::int64_t updated_before_the_norm(const Workload& w, std::chrono::milliseconds patience) {
  LocalWorld world(1);
  std::vector<StateSlice> moments;
  std::int64_t updated = 0;
  const std::unique_ptr<Communicator> alone = world.communicator(Rank{0});
  AtTheNorm comm(*alone, [&] {
    const auto until = std::chrono::steady_clock::now() + patience;
    do {
      updated = std::ranges::count_if(moments, [](const StateSlice& slice) {
        return slice.copy().count_nonzero().item<std::int64_t>() > 0;
      });
    } while (updated < static_cast<std::int64_t>(moments.size()) && std::chrono::steady_clock::now() < until);
  });
  test::Alone<Offload> rank(comm, test::shape_for(w, 1, 0, CommBackend::local), {{.piece = 4'000'000}}, 0.01);
  for (StateSlice& slice : rank.lesson.state())
    if (slice.purpose == Purpose::momentum) moments.push_back(std::move(slice));
  EXPECT_EQ(moments.size(), 5U);
  rank.lesson.train_step(test::made_up_step(rank.shape, 0));
  rank.lesson.quiet();
  return updated;
}

TEST(Offload, WhatNeedsNoNormIsUpdatedBeforeIt) {
  using namespace std::chrono_literals;
  Workload w = offloaded_workload(1, 1);
  w.optim.clip = 0;
  EXPECT_EQ(updated_before_the_norm(w, 20s), 5);
  w.optim.clip = 1;
  EXPECT_EQ(updated_before_the_norm(w, 100ms), 0);
  w.optim.clip = 0, w.optim.nonfinite = OnNonFinite::skip;
  EXPECT_EQ(updated_before_the_norm(w, 100ms), 0);
}

TEST(Offload, DelaysChangeNothing) {
  for (const std::int64_t micro : {1, 3}) {
    const Workload w = offloaded_workload(micro, 3);
    const test::RankResult expected = offloaded_reference(w, 3);
    for (int k = 0; k < 5; ++k) expect_both_equal(expected, 3, w, {{.piece = 600}}, test::delayed);
  }
}

/// Overwrites what has left the device with NaN at once, because nothing may read it any more. Counts the
/// copies to the device that wait for no more than the last issued(), and the calls of issued().
class PoisoningCopies final : public Copies {
 public:
  struct Counts {
    std::int64_t at_once = 0, asked = 0;
  };
  explicit PoisoningCopies(Counts& counts) : counts_(counts) {}
  [[nodiscard]] std::int64_t dropped_tickets() const override { return inner_->dropped_tickets(); }
  [[nodiscard]] After issued() override {
    ++counts_.asked;
    return last_ = std::make_shared<int>();
  }
  Ticket issue(const Operation& op, const at::Tensor& from, const at::Tensor& to, OfStep of_step,
               const After& after) override {
    counts_.at_once += op.kind == CommKind::to_device && after != nullptr && after == last_ ? 1 : 0;
    Ticket ticket = inner_->issue(op, from, to, of_step, {});
    if (op.kind != CommKind::to_host) return ticket;
    ticket.end().wait();
    at::Tensor left = from;
    left.masked_fill_(left.ne(0), std::numeric_limits<double>::quiet_NaN());  // padding is written by nobody
    return ticket;
  }

 private:
  const std::unique_ptr<Copies> inner_ = make_host_copies();
  Counts& counts_;
  After last_;
};

TEST(Offload, TheHostReadsNothingOfTheDevice) {
  for (const std::int64_t micro : {1, 3}) {
    const Workload w = offloaded_workload(micro, 1);
    const test::RankResult expected = offloaded_reference(w, 1);
    for (const ParametersOn parameters : kParameters) {
      LocalWorld world(1);
      const std::unique_ptr<Communicator> comm = world.communicator(Rank{0});
      Ledger ledger(at::kCPU);
      const OffloadOptions options{{.parameters = parameters, .piece = 300}};
      const RunShape shape = test::shape_for(w, 1, 0, CommBackend::local);
      PoisoningCopies::Counts counts;
      const test::RankResult found =
          test::run_rank<Offload>(*comm, shape, options, kOffloadSteps, ledger, nullptr, {},
                                  std::make_unique<PoisoningCopies>(counts));
      test::expect_equals_reference({found}, expected);
      const ParamLayout layout(w.model, WorldSize{1});
      EXPECT_EQ(counts.asked, kOffloadSteps) << "before a step";
      EXPECT_EQ(counts.at_once, kOffloadSteps * std::ssize(cut_pieces(layout, Rank{0}, options.piece)))
          << "parameters wait for no unit before theirs";
    }
  }
}

struct WarmSteps {
  std::int64_t warm_steps = 2;
};

constexpr std::int64_t kDelayedSteps = 7;

/// Delayed updates by their definition: step t computes with the parameters that updates 0 to t - 2 have made
/// (t - 1 in warm steps). Every rank holds everything, and every version of the parameters.
class DelayedDirectly final : public Strategy {
 public:
  using Plans = test::NoPlans<WarmSteps>;
  using Options = WarmSteps;

  DelayedDirectly(RunContext& context, const Options& options)
      : context_(context),
        options_(options),
        layout_(context.shape.workload.model, context.shape.mesh.world()),
        passes_(context, layout_),
        sums_(passes_.sums()),
        versions_(kDelayedSteps + 1) {
    const auto zero = [&](at::Tensor& arena) {
      arena = context.ledger.zeros(Purpose::parameters, "test", {layout_.arena_size().value()}, DType::f32);
    };
    for (at::Tensor* arena : {&fresh_, &grads_, &m_, &v_}) zero(*arena);
    for (at::Tensor& version : versions_) zero(version);
    fresh_of_ = unit_views(layout_, fresh_);
    read(0);
    for (int unit = 0; unit < layout_.num_units(); ++unit)
      init_unit(layout_, unit, context.shape.workload.seed, params_of_[static_cast<std::size_t>(unit)]);
  }
  StepResult train_step(std::span<const Batch> batches) override {
    sums_.zero_();
    for (std::size_t j = 0; j < batches.size(); ++j) {
      for (int unit = 0; unit <= layout_.last_unit(); ++unit)
        passes_.forward(unit, batches[j], params_of_[unit]);
      passes_.head(batches[j], params_of_, fresh_of_, Write::overwrite, sums_);
      for (int unit = layout_.num_blocks(); unit >= 1; --unit) {
        passes_.backward_input(unit, params_of_[unit]);
        passes_.backward_weights(unit, fresh_of_[unit], Write::overwrite);
      }
      passes_.embed_backward(batches[j], fresh_of_[0], Write::overwrite);
      context_.comm.all_reduce(fresh_).wait();
      j == 0 ? (void)grads_.copy_(fresh_) : (void)grads_.add_(fresh_);
    }
    const std::vector<UnitTensors> units = unit_views(layout_, grads_);
    std::vector<at::Tensor> mine;
    for (int unit = 0; unit < layout_.num_units(); ++unit)
      mine.push_back(slice_of_rank(layout_, unit, context_.comm.rank())
                         .of_unit(units[static_cast<std::size_t>(unit)].sharded));
    add_sums_of_squares(mine, sums_);
    finish_sums(sums_);
    context_.comm.all_reduce(sums_).wait();
    global_norm_and_clip(sums_, context_.shape.workload.optim.clip, context_.scalars);
    versions_[step_ + 1].copy_(versions_[step_]);
    ++step_;
    update(versions_[step_]);
    read(static_cast<std::int64_t>(step_) < options_.warm_steps ? step_ : step_ - 1);
    return {sums_, context_.scalars.grad_norm};
  }
  std::vector<StepResult> drain() override {
    read(step_);
    return {};
  }
  void forward_loss(const Batch& batch, at::Tensor& sums) override {
    for (int unit = 0; unit <= layout_.last_unit(); ++unit) passes_.forward(unit, batch, params_of_[unit]);
    passes_.head_loss(batch, params_of_, sums);
  }
  [[nodiscard]] at::Tensor& sums() override { return sums_; }
  [[nodiscard]] std::vector<StateSlice> state() const override {
    std::vector<StateSlice> state;
    for (int unit = 0; unit < layout_.num_units(); ++unit) {
      const Range all{0, layout_.unit(unit).sharded_size};
      const auto add = [&](Purpose purpose, const at::Tensor& arena) {
        state.push_back({purpose, unit, Segment::sharded, all, in_tensor(of(arena, unit))});
      };
      add(Purpose::parameters, versions_[step_]), add(Purpose::momentum, m_), add(Purpose::variance, v_);
    }
    return state;
  }
  [[nodiscard]] const ParamLayout& layout() const override { return layout_; }

 private:
  /// Selects the version of the parameters for later computation.
  void read(std::size_t version) { params_of_ = unit_views(layout_, versions_[version]); }
  [[nodiscard]] at::Tensor of(const at::Tensor& arena, int unit) const {
    return unit_views(layout_, arena)[static_cast<std::size_t>(unit)].sharded;
  }
  void update(const at::Tensor& params) {
    for (int unit = 0; unit < layout_.num_units(); ++unit) {
      at::Tensor p = of(params, unit), m = of(m_, unit), v = of(v_, unit);
      adamw_step(hyper_of(context_.shape.workload.optim), context_.scalars,
                 layout_.decay_ranges(unit, Segment::sharded, {0, p.numel()}), of(grads_, unit), p, m, v,
                 nullptr);
    }
  }

  RunContext& context_;
  Options options_;
  ParamLayout layout_;
  Passes passes_;
  at::Tensor sums_, fresh_, grads_, m_, v_;
  std::vector<at::Tensor> versions_;
  std::vector<UnitTensors> params_of_, fresh_of_;
  std::size_t step_ = 0;  // updates made
};

void expect_equals_direct(const std::vector<test::RankResult>& found, const test::RankResult& direct) {
  test::expect_equals_reference(found, direct);
  EXPECT_EQ(found[0].evaluation, direct.evaluation) << "to the bit, too: as many ranks";
}

TEST_P(OffloadWorlds, DelayedUpdatesEqualTheirDirectComputation) {
  const int world = GetParam();
  for (const std::int64_t micro : {1, 3})
    for (const std::int64_t warm : {0, 1, 2, 3}) {
      SCOPED_TRACE(std::to_string(world) + " ranks, " + std::to_string(micro) + " micro-batches, warm " +
                   std::to_string(warm));
      const Workload w = offloaded_workload(micro, world);
      const test::RankResult direct =
          test::run_local<DelayedDirectly>(world, w, {.warm_steps = warm}, kDelayedSteps).at(0);
      for (const ParametersOn parameters : kParameters) {
        OffloadOptions options{
            {.parameters = parameters, .update = UpdateKind::delayed, .warm_steps = warm, .piece = 999}};
        expect_equals_direct(test::run_local<Offload>(world, w, options, kDelayedSteps), direct);
        if (warm == 2)
          expect_equals_direct(test::run_local<Offload>(world, w, options, kDelayedSteps, test::delayed),
                               direct);
      }
    }
}

// An evaluation brings what is due to the devices, and leaves delayed updates where they are.
TEST(OffloadDelayed, AnEvaluationInTheMiddleChangesNoBit) {
  for (const int world : {1, 2}) {
    const Workload w = offloaded_workload(3, world);
    const test::RankResult direct = test::run_local<DelayedDirectly>(world, w, {}, kDelayedSteps).at(0);
    for (const std::int64_t after : {0, 1, 2, 4})
      expect_equals_direct(test::run_local<Offload>(world, w, {{.update = UpdateKind::delayed, .piece = 500}},
                                                    kDelayedSteps, {}, after),
                           direct);
  }
}

TEST(OffloadDelayed, WithWarmStepsToTheEndItIsExact) {
  const Workload w = offloaded_workload(3, 2);
  const test::RankResult expected = offloaded_reference(w, 2);
  expect_offload_equals(expected, 2, w, {{.update = UpdateKind::delayed, .warm_steps = kOffloadSteps}});
  const std::vector<double> late =
      test::run_local<Offload>(2, w, {{.update = UpdateKind::delayed, .warm_steps = 1}}, kOffloadSteps)
          .at(0)
          .losses;
  EXPECT_NE(late, expected.losses) << "the comparison could not fail";
}

std::vector<at::Tensor> gradients_after(std::int64_t steps, const OffloadOptions& options) {
  LocalWorld world(1);
  const std::unique_ptr<Communicator> comm = world.communicator(Rank{0});
  test::Alone<Offload> rank(*comm, test::shape_for(offloaded_workload(3, 1), 1, 0, CommBackend::local),
                            options, 0.01);
  for (std::int64_t step = 0; step < steps; ++step)
    rank.lesson.train_step(test::made_up_step(rank.shape, step));
  std::vector<at::Tensor> gradients;
  for (const StateSlice& slice : rank.lesson.state())
    if (slice.purpose == Purpose::gradients) gradients.push_back(slice.copy());
  rank.lesson.quiet();
  return gradients;
}

// The state refers to the one of two host buffers into which the last step's gradients were copied, because a
// gradient that is not finite is searched there.
TEST(OffloadDelayed, TheStateHasTheLastStepsGradients) {
  for (const std::int64_t steps : {3, 4}) {
    const std::vector<at::Tensor> exact = gradients_after(steps, {}),
                                  found = gradients_after(steps,
                                                          {{.update = UpdateKind::delayed, .warm_steps = 9}});
    ASSERT_EQ(found.size(), exact.size());
    for (std::size_t i = 0; i < exact.size(); ++i) EXPECT_TRUE(exact[i].equal(found[i]));
  }
}

TEST(Offload, RefusesWhatContradictsItself) {
  struct Case {
    OffloadOptions options;
    std::string said;
    DeviceKind device = DeviceKind::cpu;
  };
  for (const Case& c :
       std::vector<Case>{{{}, "taken"},
                         {{}, "taken", DeviceKind::cuda},
                         {{{.link_mbps = 5}}, "taken"},
                         {{{.resident = 4}}, "taken"},
                         {{{.update = UpdateKind::delayed}, false},
                          "64 update=delayed: an update that is put off runs beside the device"},
                         {{{.resident = 5}},
                          "64 resident: the model has 5 units, and the host updates one of them at least"},
                         {{{.update = UpdateKind::delayed, .resident = 1}},
                          "64 resident: the device would update at once what the host updates a step later"},
                         {{{.link_mbps = 5}},
                          "64 link_mbps: it is about ranks on the CPU, and these are GPUs",
                          DeviceKind::cuda}})
    EXPECT_EQ(test::refusal<OffloadPlans>(c.options, offloaded_workload(1, 1), 1, c.device), c.said);
}

TEST(Offload, SaysHowTheHostComputes) {
  RunShape shape = test::shape_for(offloaded_workload(1, 1), 1, 0, CommBackend::local);
  EXPECT_EQ(OffloadPlans({{.adam_threads = 1}}).predict(shape), "the host's AdamW: 1 thread a rank\n");
  EXPECT_NE(OffloadPlans({{.adam_threads = 1000}})
                .predict(shape)
                .find("1000 threads a rank; with 1 ranks more than the "),
            std::string::npos);
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  for (const int world : {1, 2}) {  // a rank's share of the cores, less one
    shape.mesh = Mesh(WorldSize{world});
    const std::string threads = std::to_string(std::max(1, cores / world - 1));
    EXPECT_EQ(OffloadPlans().predict(shape).find("the host's AdamW: " + threads + " thread"), 0U);
  }
  const auto take_turns = [&](int world, std::int64_t threads) {
    shape.mesh = Mesh(WorldSize{world});
    return OffloadPlans({{.adam_threads = threads}}).predict(shape).find("take turns") != std::string::npos;
  };
  EXPECT_FALSE(take_turns(1, cores));
  EXPECT_TRUE(take_turns(1, cores + 1));
  EXPECT_TRUE(take_turns(2, cores));
  EXPECT_FALSE(take_turns(2 * cores, 0)) << "nobody has asked for so many";
  shape.mesh = Mesh(WorldSize{1});
  EXPECT_NE(
      OffloadPlans({{.update = UpdateKind::delayed}}).predict(shape).find("\nupdate=delayed: from step 2 on"),
      std::string::npos);
  const OffloadPlans exact({{.update = UpdateKind::delayed, .warm_steps = 20}});
  EXPECT_EQ(exact.predict(shape).find("update=delayed"), std::string::npos);
  EXPECT_EQ(exact.facts(shape).notes,
            std::vector<std::string>{"update=delayed: all 20 steps are exact, since warm_steps=20"});
}

// With whole parameters the device holds them and four units' gradients; states lie on the host, divided by
// the ranks.
TEST(OffloadPlan, StatesLieOnTheHost) {
  const Workload w = offloaded_workload(1, 2);
  const auto plan = [&](int world, const OffloadOptions& options) {
    return OffloadPlans(options).memory_plan(test::shape_for(w, world, 0, CommBackend::local));
  };
  const std::int64_t P = 4 * ParamLayout(w.model, WorldSize{2}).arena_size().value();
  const MemoryPlan two = plan(2, {}), delayed = plan(2, {{.update = UpdateKind::delayed}});
  // Two units stay on the device: 12 bytes per element, and the block's gradient.
  const ParamLayout layout(w.model, WorldSize{2});
  const std::int64_t embedding = 4 * layout.unit(0).sharded_size / 2,
                     block = 4 * layout.unit(1).sharded_size / 2;
  const MemoryPlan resident = plan(2, {{.resident = 2}});
  test::expect_counts({{two.of(Purpose::parameters).value(), P},
                       {two.of(Purpose::momentum).value(), 0},
                       {two.of(Purpose::momentum, Place::host).value(), P / 2},
                       {two.of(Purpose::gradients, Place::pinned).value(), P / 2},
                       {delayed.of(Purpose::gradients, Place::pinned).value(), P},
                       {delayed.total().value(), two.total().value()},
                       {resident.of(Purpose::momentum).value(), embedding + block},
                       {resident.of(Purpose::momentum, Place::host).value(), P / 2 - embedding - block},
                       {resident.of(Purpose::gradients).value(), two.of(Purpose::gradients).value() + block},
                       {resident.of(Purpose::gradients, Place::pinned).value(), P / 2 - embedding - block}});
  EXPECT_LT(plan(2, {{.parameters = ParametersOn::sharded, .prefetch = 0}}).of(Purpose::parameters).value(),
            3 * P / 2);
}

}  // namespace
}  // namespace sc
