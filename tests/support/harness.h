// Runs a strategy for a few steps on made-up tokens and keeps all that tests compare. Header-only; programs
// link it with the lesson under test.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "common/base/counter_random.h"
#include "common/comm/copies/recording_copies.h"
#include "common/comm/local_communicator.h"
#include "common/comm/recording_communicator.h"
#include "common/memory/allocator_witness.h"
#include "common/model/activation_plan.h"
#include "common/optim/loss_scale.h"
#include "common/optim/lr_schedule.h"
#include "common/strategy/strategy.h"
#include "tests/support/delaying_communicator.h"
#include "tests/support/delaying_copies.h"

namespace sc::test {

/// A model small enough for a hundred runs, with sizes that no usual number of ranks divides.
inline Workload odd_workload() {
  Workload w;
  w.model = {.layers = 3, .heads = 2, .width = 20, .context = 12, .vocab = 37, .tied = true};
  w.batch = {.sequence = 9, .global = 12, .micro = 1};
  w.optim.warmup_steps = 2;
  w.optim.lr = 1e-2;
  w.steps = 20;
  w.head_chunk = 5;
  return w;
}

/// Calls f(workload) for every activations setting, tied and untied heads, one and two rows a micro-batch.
template <class F>
void for_each_model(const F& f) {
  for (const Activations activations :
       {Activations::keep, Activations::recompute_gelu, Activations::recompute})
    for (const bool tied : {true, false}) {
      Workload w = odd_workload();
      w.activations = activations;
      w.model.tied = tied;
      w.batch.micro = tied ? 1 : 2;
      w.batch.global *= w.batch.micro;
      SCOPED_TRACE(std::to_string(static_cast<int>(activations)) + (tied ? " tied" : " untied"));
      f(w);
    }
}

/// True for every seventh target, which has no loss. Which ones depends on the micro-batch `j`, so that
/// micro-batches count different numbers of targets.
inline bool without_loss(std::int64_t j, std::int64_t i) { return (i + 2 * j) % 7 == 3; }
inline std::int64_t targets_of(const Workload& w, std::int64_t j) {
  std::int64_t with_loss = 0;
  for (std::int64_t i = 0; i < w.batch.micro * w.batch.sequence; ++i) with_loss += without_loss(j, i) ? 0 : 1;
  return with_loss;
}

/// Micro-batch `j` of a step, numbered over all ranks, of made-up tokens.
inline Batch made_up_batch(const Workload& w, std::int64_t step, std::int64_t j) {
  const std::int64_t B = w.batch.micro, T = w.batch.sequence;
  Batch batch{at::empty({B, T}, at::kLong), at::empty({B, T}, at::kLong), {}};
  for (std::int64_t i = 0; i < B * T; ++i) {
    const std::uint64_t r = mix64(mix64(w.seed * 1000003 + static_cast<std::uint64_t>(step)) +
                                  static_cast<std::uint64_t>(j * B * T + i));
    batch.tokens.data_ptr<std::int64_t>()[i] =
        static_cast<std::int64_t>(r % static_cast<std::uint64_t>(w.model.vocab));
    batch.targets.data_ptr<std::int64_t>()[i] =
        without_loss(j, i) ? -1
                           : static_cast<std::int64_t>((r >> 32) % static_cast<std::uint64_t>(w.model.vocab));
  }
  batch.with_loss = targets_of(w, j);
  std::int64_t of_step = 0;
  for (std::int64_t k = 0; k < w.batch.global / B; ++k) of_step += targets_of(w, k);
  batch.scale = at::full({}, 1.0 / static_cast<double>(of_step), at::kFloat);
  return batch;
}

/// One rank's micro-batches of a step.
inline std::vector<Batch> made_up_step(const RunShape& shape, std::int64_t step) {
  const std::int64_t mine = micro_batches_of(shape), first = shape.at(Axis::data) * mine;
  std::vector<Batch> batches;
  for (std::int64_t j = first; j < first + mine; ++j)
    batches.push_back(made_up_batch(shape.workload, step, j));
  return batches;
}

/// Host bytes of one rank's step scalars: three floats and the step number as int64.
inline constexpr Bytes kScalarBytes{3 * 4 + 8};
inline StepScalars step_scalars(double lr, std::int64_t updates, bool scales_loss = false) {
  StepScalars scalars{at::full({}, lr, at::kFloat), at::full({}, updates, at::kLong),
                      at::full({}, 1.0, at::kFloat), at::full({}, 0.0, at::kFloat)};
  if (!scales_loss) return scalars;
  scalars.loss_scale = at::full({}, LossScale::kStart, at::kFloat);
  scalars.scaler_state = at::zeros({2}, at::kLong);
  return scalars;
}

/// The parts of a RunContext that tests without copies and marks leave at their defaults.
struct Beside {
  std::unique_ptr<Copies> copies = make_host_copies();
  Timeline timeline;
};

/// One rank's lesson on a communicator given by the test, with everything that the lesson refers to.
template <Lesson S>
struct Alone {
  Alone(Communicator& comm, const RunShape& of, const typename S::Options& options, double lr = 0,
        bool scales_loss = false, std::shared_ptr<CommRecord> record = {})
      : shape(of),
        scalars(step_scalars(lr, 0, scales_loss)),
        context{shape, comm, ledger, scalars, *beside.copies, beside.timeline, std::move(record)},
        lesson(context, options) {
    at::set_num_threads(1);
  }
  const c10::InferenceMode inference;
  const RunShape shape;
  Ledger ledger{at::kCPU};
  const StepScalars scalars;
  Beside beside;
  RunContext context;
  S lesson;
};

/// Measures the bytes of LibTorch's allocator in one step of all ranks of this process. Every rank calls
/// begin() before the step and end() after it, with no operation in flight.
class StepWitness {
 public:
  explicit StepWitness(int ranks) : gate_(ranks) {}
  void begin(int rank) {
    gate_.arrive_and_wait();
    if (rank == 0) {
      witness_.reset_peak();
      before = witness_.live();
    }
    gate_.arrive_and_wait();
  }
  void end(int rank) {
    gate_.arrive_and_wait();
    if (rank == 0) during = witness_.peak();
    gate_.arrive_and_wait();
  }
  void leave() { gate_.arrive_and_drop(); }  // a rank that failed
  Bytes before, during;                      // alive when the step began; the peak inside it

 private:
  AllocatorWitness witness_;
  std::barrier<> gate_;
};
/// StepWitness watches step 1, because step 0 includes allocations of first uses.
constexpr std::int64_t kWitnessedStep = 1;

struct RankResult {
  std::optional<ParamLayout> layout;  // of the state
  std::vector<StateSlice> state;      // clones, after the last step
  std::vector<double> losses, norms;  // of every step
  std::vector<double> rates;          // the same, where results say them
  ByPlace<Bytes> peak;
  ByName peak_by_name;
  Bytes peak_total;
  MemoryPlan memory_plan;
  CommPlan comm_plan;
  std::vector<CommPlan> recorded, checked;  // of every step: its own, and those of after_step
  double evaluation = 0,
         evaluation_between = 0;  // after the last step; after the last one before with an evaluation
  std::int64_t first_result = 0;  // the step of losses[0]
  std::int64_t dropped = 0;
  std::int64_t planned_from = 0;       // the first step whose operations are those of the plan
  std::optional<Timetable> timetable;  // rank 0's
  std::vector<Computed> computed;      // of the witnessed step, as a trace would draw it
  std::vector<std::string> came_to;    // in the last step, as the message of a hang would say
  Bytes batches, op_scratch;  // of the witnessed step: the test's own tensors; what one operation may take
};

/// Adds a step's result to `rank`; a strategy may give it some steps late, or not at all.
inline void note(const StepResult& result, RankResult& rank) {
  if (!result.sums.defined()) return;
  if (rank.first_result > 0 && rank.losses.empty())
    rank.first_result = result.of_step.value_or(rank.first_result);
  const std::int64_t expected = rank.first_result + static_cast<std::int64_t>(rank.losses.size());
  EXPECT_EQ(result.of_step.value_or(expected), expected);
  rank.losses.push_back(result.sums.data_ptr<double>()[0] / result.sums.data_ptr<double>()[1]);
  rank.norms.push_back(result.grad_norm.item<float>());
  if (result.lr) rank.rates.push_back(*result.lr);
}

/// Where a rank begins and what it does between steps, besides training and the evaluation at the end.
struct Around {
  std::int64_t first_step = 0, evaluate_every = 0;
  /// Called before the first step, for a run that goes on from another.
  std::function<void(const RunShape& shape, Strategy& strategy, const StepScalars& scalars)> begins =
      [](auto&&...) {};
  /// Called after each step with the number of steps done.
  std::function<void(Strategy& strategy, Communicator& comm, const StepScalars& scalars, std::int64_t done)>
      between = [](auto&&...) {};
};

/// The units whose updates are marked in the witnessed step, in order.
inline std::vector<int> units_updated(const RankResult& result) {
  std::vector<int> units;
  for (const Computed& one : result.computed)
    if (one.pass == Pass::update) units.push_back(one.unit);
  return units;
}

/// What is marked in the witnessed step before the norm, in order: "forward of unit 0, micro-batch 0; ...".
inline std::string passes_marked(const RankResult& result) {
  std::string text;
  for (const Computed& one : result.computed) {
    if (one.pass == Pass::norm) break;
    text += (text.empty() ? "" : "; ") + describe(one);
  }
  return text;
}

/// Made-up validation batches, the same on every rank.
inline std::vector<Batch> made_up_validation(const Workload& w) {
  std::vector<Batch> batches;
  for (std::int64_t j = 0; j < 4; ++j) batches.push_back(made_up_batch(w, 1'000'000, j));
  return batches;
}
/// The mean loss of all of this rank's `batches`, evaluated in a single round.
inline double evaluate(Strategy& strategy, Communicator& comm, std::span<const Batch> batches) {
  return evaluate_rounds(strategy, comm,
                         [&](std::int64_t round) { return batches.first(round == 0 ? batches.size() : 0); });
}

template <Lesson S>
RankResult run_rank(Communicator& transport, const RunShape& shape, const typename S::Options& options,
                    std::int64_t steps, Ledger& ledger, StepWitness* witness = nullptr,
                    std::optional<std::int64_t> evaluate_after = {},
                    std::unique_ptr<Copies> copies_of_rank = make_host_copies(), const Around& around = {}) {
  c10::InferenceMode inference;
  at::set_num_threads(1);
  RankResult result;
  RecordingCommunicator comm(transport);
  const StepScalars scalars = step_scalars(0, 0);
  const typename S::Plans plans(options);
  result.memory_plan = plans.memory_plan(shape);
  result.comm_plan = plans.comm_plan(shape);
  result.op_scratch = plan_op_scratch_bytes(shape);
  result.planned_from = plans.facts(shape).planned_from;
  RecordingCopies copies(std::move(copies_of_rank), comm.shared_record());
  Timeline timeline;
  RunContext context{shape, comm, ledger, scalars, copies, timeline, comm.shared_record(), around.first_step};
  S strategy(context, options);
  const Workload& w = shape.workload;
  result.layout = strategy.layout();
  result.first_result = around.first_step;
  around.begins(shape, strategy, scalars);
  for (std::int64_t step = around.first_step; step < steps; ++step) {
    const std::vector<Batch> batches = made_up_step(shape, step);
    scalars.lr.fill_(learning_rate(w.optim, step, w.steps));
    comm.set_phase("train");
    comm.set_step(step);
    timeline.begin_step(step, {.drawn = step == kWitnessedStep});
    result.came_to.clear();
    timeline.on_coming_to([&](std::string_view what) {
      if (!what.empty()) result.came_to.emplace_back(what);
    });
    const bool witnessed = witness != nullptr && step == kWitnessedStep;
    if (witnessed) {
      for (const Batch& b : batches)
        result.batches +=
            Bytes(static_cast<std::int64_t>(b.tokens.nbytes() + b.targets.nbytes() + b.scale.nbytes()));
      witness->begin(to_int(transport.rank()));
    }
    const StepResult out = strategy.train_step(batches);
    timeline.end_step();
    timeline.on_coming_to({});
    if (witnessed) witness->end(to_int(transport.rank()));
    note(out, result);
    result.recorded.push_back(comm.recorded("train", step));
    comm.set_phase("check");
    strategy.after_step(step);
    result.checked.push_back(comm.recorded("check", step));
    comm.set_phase("eval");
    if (step == evaluate_after || (around.evaluate_every > 0 && (step + 1) % around.evaluate_every == 0))
      result.evaluation_between = evaluate(strategy, comm, made_up_validation(w));
    around.between(strategy, comm, scalars, step + 1);
  }
  comm.set_phase("eval");
  for (const StepResult& late : drain(strategy)) note(late, result);
  result.evaluation = evaluate(strategy, comm, made_up_validation(w));
  result.timetable = strategy.timetable(comm);
  for (const Timeline::Span& span : timeline.drawn())
    if (span.computed) result.computed.push_back(*span.computed);
  for (StateSlice& slice : strategy.state()) {
    if (slice.purpose == Purpose::gradients || slice.purpose == Purpose::workspace)
      continue;  // dead between steps
    slice.values = in_tensor(slice.copy());
    result.state.push_back(std::move(slice));
  }
  result.peak = ledger.peaks();
  result.peak_by_name = ledger.peaks_by_name();
  result.peak_total = ledger.peak_total();
  result.dropped = comm.dropped_tickets() + copies.dropped_tickets();
  return result;
}

inline RunShape shape_for(const Workload& w, int world, int rank, CommBackend backend,
                          const std::optional<Mesh>& mesh = {}) {
  return {.workload = w,
          .mesh = mesh.value_or(Mesh(WorldSize{world})),
          .rank = Rank{rank},
          .device = DeviceKind::cpu,
          .ops = OpsBackend::aten,
          .comm = backend,
          .threads = 1};
}

/// Expects that LibTorch allocated only the ledgers' bytes and the test's own tensors, and inside the step
/// only what operations may use as scratch on top.
inline void expect_nothing_beside_the_ledger(const StepWitness& witness,
                                             const std::vector<RankResult>& ranks) {
  Bytes ledgers, tests, scratch;
  for (const RankResult& rank : ranks) {
    ledgers += rank.peak_total;
    tests += rank.batches + kScalarBytes;
    scratch += rank.op_scratch;
  }
  EXPECT_EQ(witness.before.value(), (ledgers + tests).value()) << "bytes beside the ledger before the step";
  EXPECT_GE(witness.during.value(), witness.before.value());
  EXPECT_LE(witness.during.value(), (witness.before + scratch).value())
      << "bytes beside the ledger in the step";
}

/// Wraps a rank's communicator in a decorator, e.g. one with delays or faults.
using Wrap = std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>)>;
using sc::delayed;  // a Wrap
template <Lesson S>
std::vector<RankResult> run_local(int world, const Workload& w, const typename S::Options& options,
                                  std::int64_t steps, const Wrap& wrap = {},
                                  std::optional<std::int64_t> evaluate_after = {},
                                  const Around& around = {}) {
  const bool witnesses = around.first_step == 0 && steps > kWitnessedStep;
  StepWitness witness(world);
  LocalWorld ranks(world);
  std::vector<RankResult> results(static_cast<std::size_t>(world));
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(world));
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < world; ++r)
      threads.emplace_back([&, r] {
        std::unique_ptr<Communicator> comm = ranks.communicator(Rank{r});
        if (wrap) comm = wrap(std::move(comm));
        try {
          Ledger ledger(at::kCPU);
          const RunShape shape =
              shape_for(w, world, r, CommBackend::local, typename S::Plans(options).mesh(WorldSize{world}));
          std::unique_ptr<Copies> copies = make_host_copies();
          if (wrap) copies = std::make_unique<DelayingCopies>(std::move(copies), 7 + r);
          results[r] = run_rank<S>(*comm, shape, options, steps, ledger, witnesses ? &witness : nullptr,
                                   evaluate_after, std::move(copies), around);
          EXPECT_EQ(comm->dropped_tickets(), 0) << "in flight when the lesson's object went";
        } catch (...) {
          errors[r] = std::current_exception();
          comm->abort();
          witness.leave();
        }
      });
  }
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  if (witnesses) expect_nothing_beside_the_ledger(witness, results);
  return results;
}

/// The values that a slice must have, from the whole vector of its unit as a run without a tensor cut holds
/// it.
inline at::Tensor expected_of(const StateSlice& slice, const ParamLayout& layout, const StateSlice& whole) {
  const at::ScalarType type = to_aten(slice.values->dtype());
  if (layout.cut().ranks == 1) {
    at::Tensor expected = at::zeros({slice.range.size()}, type);
    return whole.read(slice.range, expected), expected;
  }
  at::Tensor segment = at::zeros({layout.unit(slice.unit).size(slice.segment)}, type);
  const at::Tensor values = whole.copy();
  const ParamLayout uncut = layout.whole();
  for (const ParamTensor& t : layout.unit(slice.unit).tensors) {
    if (t.segment != slice.segment) continue;
    const std::int64_t offset = uncut.find(slice.unit, t.name)->offset;
    for_each_run(t, {0, t.numel()}, [&](Range here, std::int64_t at) {
      segment.narrow(0, t.offset + here.begin, here.size()).copy_(values.narrow(0, offset + at, here.size()));
    });
  }
  return segment.narrow(0, slice.range.begin, slice.range.size());
}

/// Whether every slice of a rank equals, bit for bit, its range of the reference's whole vector.
inline ::testing::AssertionResult bit_equal(const RankResult& rank, const RankResult& reference) {
  std::size_t compared = 0;
  const bool cut = rank.layout->cut().ranks > 1;
  for (const StateSlice& slice : rank.state)
    for (const StateSlice& whole : reference.state) {
      if (whole.purpose != slice.purpose || whole.unit != slice.unit ||
          whole.segment != (cut ? Segment::sharded : slice.segment))
        continue;
      const at::Tensor found = slice.copy(), expected = expected_of(slice, *rank.layout, whole);
      if (std::memcmp(expected.const_data_ptr(), found.const_data_ptr(), found.nbytes()) != 0) {
        const at::Tensor wanted = expected.to(at::kFloat), have = found.to(at::kFloat);
        const float* a = wanted.const_data_ptr<float>();
        const float* b = have.const_data_ptr<float>();
        std::int64_t at = 0;
        while (at + 1 < found.numel() && std::memcmp(a + at, b + at, sizeof(float)) == 0) ++at;
        return ::testing::AssertionFailure()
               << name_of(slice.purpose) << " of unit " << slice.unit << " differs at element "
               << slice.range.begin + at << ": " << b[at] << " instead of " << a[at];
      }
      ++compared;
    }
  if (compared != rank.state.size() || compared == 0)
    return ::testing::AssertionFailure()
           << compared << " of " << rank.state.size() << " slices were found in the reference";
  return ::testing::AssertionSuccess();
}

/// Whether every buffer has the name and the bytes of the plan.
inline ::testing::AssertionResult named_as_planned(const ByName& found, const ByName& planned) {
  const auto unlike = differences(planned, found);
  if (unlike.empty()) return ::testing::AssertionSuccess();
  auto failure = ::testing::AssertionFailure();
  for (const auto& [buffer, its] : unlike)
    failure << name_of(buffer.purpose) << ", " << name_of(buffer.place) << ", '" << buffer.name
            << "': planned " << its.planned.value() << ", found " << its.found.value() << "\n";
  return failure;
}

/// Expects that peak bytes by purpose and name, their total, and the operations of every step equal the
/// plans.
inline void expect_as_planned(const RankResult& rank) {
  for_each_place([&](Place place) {
    for_each_purpose([&](Purpose purpose) {
      EXPECT_EQ(rank.peak.at(purpose, place).value(), rank.memory_plan.of(purpose, place).value())
          << name_of(purpose) << ", " << name_of(place);
    });
  });
  EXPECT_TRUE(named_as_planned(rank.peak_by_name, rank.memory_plan.by_name()));
  EXPECT_EQ(rank.peak_total.value(), rank.memory_plan.total().value());
  for (auto step = static_cast<std::size_t>(rank.planned_from); step < rank.recorded.size(); ++step)
    EXPECT_TRUE(rank.recorded[step] == rank.comm_plan) << "operations of step " << step;
  EXPECT_EQ(rank.dropped, 0) << "tickets dropped without a wait";
}

/// Expects that every rank ends bit for bit like the run in `expected` (its own rank's, or the only one),
/// from its own first step on, with the bytes and operations of its plans.
inline void expect_goes_on(const std::vector<RankResult>& found, const std::vector<RankResult>& expected) {
  for (std::size_t r = 0; r < found.size(); ++r) {
    const RankResult &rank = found[r], &whole = expected[r % expected.size()];
    const auto from = [&](const std::vector<double>& all) {
      return std::vector<double>(all.begin() + rank.first_result, all.end());
    };
    EXPECT_TRUE(bit_equal(rank, whole));
    EXPECT_EQ(rank.losses, from(whole.losses));
    EXPECT_EQ(rank.norms, from(whole.norms));
    expect_as_planned(rank);
  }
}

/// Expects what expect_goes_on() does, and equal evaluations on all ranks.
inline void expect_equals_reference(const std::vector<RankResult>& ranks, const RankResult& expected) {
  expect_goes_on(ranks, {expected});
  // Every rank evaluates all batches, so sum and count are both N times the reference's and the loss is the
  // same.
  EXPECT_DOUBLE_EQ(ranks[0].evaluation, expected.evaluation);
  for (const RankResult& rank : ranks) EXPECT_EQ(rank.evaluation, ranks[0].evaluation);
}

/// How a lesson's plans refuse a workload on `world` ranks: "<exit code> <where>: <message>"; "taken" if they
/// accept.
template <class Plans>
std::string refusal(const typename Plans::Options& options, const Workload& w, int world,
                    DeviceKind device = DeviceKind::cpu) {
  const Plans plans(options);
  try {
    RunShape shape = shape_for(w, world, 0, CommBackend::local, plans.mesh(WorldSize{world}));
    shape.device = device;
    (void)plans.memory_plan(shape);
  } catch (const InputError& error) {
    return std::to_string(static_cast<int>(error.code())) + " " + error.where() + ": " + error.message();
  }
  return "taken";
}

}  // namespace sc::test
