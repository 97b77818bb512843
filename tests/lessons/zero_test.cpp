// Tests lessons 02-04 against lesson 00, or 01 if gradients have 16 bits: the same parameters to the bit, and
// the bytes and operations of their plans.
#include <ATen/ops/equal.h>

#include "common/comm/forwarding_communicator.h"
#include "lessons/01_data_parallel/data_parallel.h"
#include "lessons/02_zero1/zero1.h"
#include "lessons/03_zero2/zero2.h"
#include "lessons/04_zero3/zero3.h"
#include "lessons/reference/reference_order.h"
#include "tests/storage/temp_dir.h"
#include "tests/support/harness.h"
#include "tests/support/pairwise.h"

namespace sc {
namespace {

using test::delayed, test::odd_workload;

test::RankResult zero_reference(const Workload& w, int world, ReduceEvery every, std::int64_t steps) {
  return test::run_local<ReferenceOrder>(1, w, {.virtual_ranks = world, .reduce_every = every}, steps).at(0);
}

/// The number of elements of a purpose that are named in these results.
std::int64_t named(std::span<const test::RankResult> ranks, Purpose purpose) {
  std::int64_t elements = 0;
  for (const test::RankResult& rank : ranks)
    for (const StateSlice& slice : rank.state) elements += slice.purpose == purpose ? slice.range.size() : 0;
  return elements;
}

/// Requires that all of the optimizer's state is named, and nothing twice.
void expect_all_state_named(std::span<const test::RankResult> ranks, std::int64_t elements) {
  EXPECT_EQ(named(ranks, Purpose::momentum), elements);
  EXPECT_EQ(named(ranks, Purpose::variance), elements);
  EXPECT_GE(named(ranks, Purpose::parameters), elements);
}

void expect_equal_world(const std::vector<test::RankResult>& ranks, const test::RankResult& expected) {
  expect_all_state_named(ranks, named({&expected, 1}, Purpose::momentum));
  test::expect_equals_reference(ranks, expected);
}

/// Notes the elements of every sum over ranks, in the order in which they are asked for.
class SumsInOrder : public ForwardingCommunicator {
 public:
  SumsInOrder(std::unique_ptr<Communicator> inner, std::vector<std::int64_t>& sums)
      : ForwardingCommunicator(std::move(inner)), sums_(sums) {}
  Ticket issue(const Operation& op, const at::Tensor& from, const at::Tensor& to,
               std::optional<Rank> peer) override {
    if (op.kind == CommKind::all_reduce || op.kind == CommKind::reduce_scatter)
      sums_.push_back(op.elements.value());
    return ForwardingCommunicator::issue(op, from, to, peer);
  }

 private:
  std::vector<std::int64_t>& sums_;
};

/// The notes of `Noting` on rank 0, for one step on two ranks and the evaluation after it.
template <Lesson S, class Noting, class Notes>
Notes noted(const Workload& w) {
  std::array<Notes, 2> notes;
  test::run_local<S>(2, w, {}, 1, [&](std::unique_ptr<Communicator> comm) -> std::unique_ptr<Communicator> {
    Notes& mine = notes[static_cast<std::size_t>(to_int(comm->rank()))];
    return std::make_unique<Noting>(std::move(comm), mine);
  });
  return notes[0];
}

/// The units in the order in which one rank sums their gradients.
template <Lesson S>
std::vector<int> units_summed(const Workload& w) {
  const ParamLayout layout(w.model, WorldSize{2});
  std::vector<int> units;
  int block = layout.num_blocks();  // they have as many elements each: the last one comes first
  for (const std::int64_t n : noted<S, SumsInOrder, std::vector<std::int64_t>>(w)) {
    if (n == layout.unit(0).sharded_size) units.push_back(0);
    if (n == layout.unit(1).sharded_size) units.push_back(block--);
    if (n == layout.unit(layout.last_unit()).sharded_size) units.push_back(layout.last_unit());
  }
  return units;
}

// Backward completes units from the last to the first; the embedding's part of unit 0 comes last.
TEST(Zero, UnitsAreSummedAsBackwardCompletesThem) {
  Workload w = odd_workload();
  w.batch.global = 2 * w.batch.micro;  // one micro-batch a rank
  for (const std::vector<int>& units : {units_summed<DataParallel>(w), units_summed<Zero1>(w),
                                        units_summed<Zero2>(w), units_summed<Zero3>(w)})
    EXPECT_EQ(units, (std::vector<int>{4, 3, 2, 1, 0}));
}

// Traces and pages draw updates as they are marked.
TEST(Zero, EveryUnitsUpdateIsMarked) {
  const std::vector<int> all = {0, 1, 2, 3, 4};
  EXPECT_EQ(test::units_updated(test::run_local<Zero1>(2, odd_workload(), {}, 2)[1]), all);
  EXPECT_EQ(test::units_updated(test::run_local<Zero2>(2, odd_workload(), {}, 2)[1]), all);
  EXPECT_EQ(test::units_updated(test::run_local<Zero3>(2, odd_workload(), {}, 2)[1]), all);
}

/// Notes when gathers are issued ("g") and waited for ("w"), each with its number.
class GathersInOrder : public ForwardingCommunicator {
 public:
  GathersInOrder(std::unique_ptr<Communicator> inner, std::string& seen)
      : ForwardingCommunicator(std::move(inner)), seen_(seen) {}
  Ticket issue(const Operation& op, const at::Tensor& from, const at::Tensor& to,
               std::optional<Rank> peer) override {
    Ticket ticket = ForwardingCommunicator::issue(op, from, to, peer);
    if (op.kind != CommKind::all_gather) return ticket;
    const std::string number = std::to_string(issued_++);
    seen_ += " g" + number;
    return Ticket(std::make_unique<Noted>(std::move(ticket), seen_, number));
  }

 private:
  class Noted : public TicketState {
   public:
    Noted(Ticket inner, std::string& seen, std::string number)
        : inner_(std::move(inner)), seen_(seen), number_(std::move(number)) {}
    bool ready() override { return inner_.ready(); }
    void wait() override {
      seen_ += " w" + number_;
      inner_.wait();
    }
    void dropped() noexcept override { inner_ = Ticket(); }

   private:
    Ticket inner_;
    std::string& seen_;
    std::string number_;
  };

  std::string& seen_;
  int issued_ = 0;
};

// If all gathers were issued at once, they would be a GPU's first work of a step, before forward. Units 0 to
// 4 are gathered; then quiet() publishes them again.
const std::string kAsForwardComesNear = " g0 g1 g2 w0 g3 w1 g4 w2 w3 w4 g5 g6 g7 g8 g9 w5 w6 w7 w8 w9";

TEST(Zero1, GathersAreIssuedAsForwardComesNear) {
  const auto seen = noted<Zero1, GathersInOrder, std::string>(odd_workload());
  EXPECT_EQ(seen.substr(0, kAsForwardComesNear.size()), kAsForwardComesNear);
}

TEST(Zero2, GathersAreIssuedAsForwardComesNear) {
  const auto seen = noted<Zero2, GathersInOrder, std::string>(odd_workload());
  EXPECT_EQ(seen.substr(0, kAsForwardComesNear.size()), kAsForwardComesNear);
}

/// Hands out windows, and notes which gathers are between two of them.
class Windows : public ForwardingCommunicator {
 public:
  struct Seen {
    std::int64_t bytes = 0, others = 0;
    std::vector<std::pair<std::size_t, std::int64_t>> places;  // of `full`: which window, where in it
  };
  Windows(std::unique_ptr<Communicator> inner, Seen& seen)
      : ForwardingCommunicator(std::move(inner)), seen_(seen) {}
  std::shared_ptr<void> window(Bytes bytes, WindowUse /*use*/) override {
    windows_.push_back(at::empty({bytes.value()}, at::kByte));
    seen_.bytes += bytes.value();
    return {std::make_shared<at::Tensor>(windows_.back()), windows_.back().mutable_data_ptr()};
  }
  Ticket issue(const Operation& op, const at::Tensor& from, const at::Tensor& to,
               std::optional<Rank> peer) override {
    const auto place = place_of(to);
    if (op.kind == CommKind::all_gather && place && place_of(from)) {
      seen_.places.push_back(*place);
    } else if (op.kind == CommKind::all_gather) {
      ++seen_.others;
    }
    return ForwardingCommunicator::issue(op, from, to, peer);
  }

 private:
  [[nodiscard]] std::optional<std::pair<std::size_t, std::int64_t>> place_of(const at::Tensor& t) const {
    const auto* begin = static_cast<const std::byte*>(t.const_data_ptr());
    for (std::size_t k = 0; k < windows_.size(); ++k) {
      const auto* data = static_cast<const std::byte*>(windows_[k].const_data_ptr());
      if (begin >= data && begin + t.nbytes() <= data + windows_[k].nbytes())
        return std::pair(k, begin - data);
    }
    return std::nullopt;
  }

  Seen& seen_;
  std::vector<at::Tensor> windows_;
};

/// Runs two ranks of a strategy: everything that is planned for gathers lies in windows, and gathered data
/// lie at the same place on both. Parameters still equal zero_reference's.
template <Lesson S, class Options>
void expect_gathers_between_windows(const Options& options, ReduceEvery every, bool others) {
  const Workload w = odd_workload();
  std::array<Windows::Seen, 2> seen;
  const std::vector<test::RankResult> ranks = test::run_local<S>(
      2, w, options, 3, [&](std::unique_ptr<Communicator> comm) -> std::unique_ptr<Communicator> {
        Windows::Seen& mine = seen[static_cast<std::size_t>(to_int(comm->rank()))];
        return std::make_unique<Windows>(std::move(comm), mine);
      });
  std::int64_t planned = 0;
  for (const Buffer& item : ranks[0].memory_plan.items())
    if (item.name.rfind("params_", 0) == 0 && item.name != "params_whole") planned += item.bytes().value();
  for (const Windows::Seen& of : seen) {
    EXPECT_EQ(of.bytes, planned);
    EXPECT_FALSE(of.places.empty());
    EXPECT_EQ(of.places, seen[0].places);
    EXPECT_EQ(of.others > 0, others) << of.others;
  }
  if (!others) expect_equal_world(ranks, zero_reference(w, 2, every, 3));
}

// Tensors that stay whole are published by other gathers.
TEST(Zero, GathersBetweenWindows) {
  expect_gathers_between_windows<Zero1>(Zero1::Options{}, ReduceEvery::step, false);
  expect_gathers_between_windows<Zero2>(Zero2::Options{}, ReduceEvery::micro_batch, false);
  expect_gathers_between_windows<Zero3>(Zero3::Options{}, ReduceEvery::micro_batch, false);
  expect_gathers_between_windows<Zero3>(Zero3::Options{.persist_below = 100}, ReduceEvery::micro_batch, true);
}

class ZeroWorlds : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Worlds, ZeroWorlds, ::testing::Values(1, 2, 3, 4));

TEST_P(ZeroWorlds, Zero1TwentySteps) {
  const Workload w = odd_workload();
  expect_equal_world(test::run_local<Zero1>(GetParam(), w, {}, 20),
                     zero_reference(w, GetParam(), ReduceEvery::step, 20));
}

TEST_P(ZeroWorlds, Zero2TwentySteps) {
  const Workload w = odd_workload();
  expect_equal_world(test::run_local<Zero2>(GetParam(), w, {}, 20),
                     zero_reference(w, GetParam(), ReduceEvery::micro_batch, 20));
}

// With one micro-batch per rank there is no scratch besides the slice.
TEST(Zero2, OneMicroBatchNeedsNoScratch) {
  Workload w = odd_workload();
  w.batch.global = 2;
  const auto ranks = test::run_local<Zero2>(2, w, {}, 3);
  expect_equal_world(ranks, zero_reference(w, 2, ReduceEvery::micro_batch, 3));
  w.batch.global = 4;
  const auto more = test::run_local<Zero2>(2, w, {}, 3);
  const auto gradients = [](const test::RankResult& rank) { return rank.peak.at(Purpose::gradients); };
  EXPECT_LT(gradients(ranks[0]), gradients(more[0]));
}

// Bytes by purpose are equal all the same, so names alone tell the buffers apart.
TEST(Zero2, ABufferOfAnotherNameIsFound) {
  const test::RankResult rank = test::run_local<Zero2>(2, odd_workload(), {}, 1).at(0);
  EXPECT_TRUE(test::named_as_planned(rank.peak_by_name, rank.memory_plan.by_name()));
  MemoryPlan other;
  for (Buffer item : rank.memory_plan.items()) {
    if (item.name == "grads_full, last unit") item.name = "grads_full";
    other.add(item);
  }
  EXPECT_EQ(other.of(Purpose::gradients), rank.memory_plan.of(Purpose::gradients));
  const ::testing::AssertionResult found = test::named_as_planned(rank.peak_by_name, other.by_name());
  EXPECT_FALSE(found);
  EXPECT_STREQ(found.message(),
               "gradients, device, 'grads_full': planned 512, found 0\n"
               "gradients, device, 'grads_full, last unit': planned 0, found 512\n");
}

TEST_P(ZeroWorlds, Zero3TwentySteps) {
  const Workload w = odd_workload();
  expect_equal_world(test::run_local<Zero3>(GetParam(), w, {}, 20),
                     zero_reference(w, GetParam(), ReduceEvery::micro_batch, 20));
}

// Groups of neighbours share vectors out and sum after every micro-batch; copies meet once per step.
TEST(Zero3, HybridShardingIsTheSameOnGroups) {
  struct Case {
    int world;
    std::int64_t shards, micro_batches;
  };
  for (const Case& c :
       {Case{4, 2, 1}, Case{4, 2, 3}, Case{4, 1, 3}, Case{4, 4, 3}, Case{6, 3, 2}, Case{6, 2, 1}})
    for (const bool tied : {true, false}) {
      SCOPED_TRACE(std::to_string(c.world) + " ranks in groups of " + std::to_string(c.shards));
      Workload w = odd_workload();
      w.model.tied = tied;
      w.batch.global = w.batch.micro * c.world * c.micro_batches;
      w.optim.clip = 1e-3;
      const ReduceOrder order{
          .virtual_ranks = c.world, .reduce_every = ReduceEvery::micro_batch, .groups = c.world / c.shards};
      test::expect_equals_reference(test::run_local<Zero3>(c.world, w, {.shard_ranks = c.shards}, 4, delayed),
                                    test::run_local<ReferenceOrder>(1, w, order, 4).at(0));
    }
}

TEST(Zero3, HybridShardingSendsOtherGroupsOneSumAStep) {
  const Workload w = odd_workload();
  const RunShape shape = test::shape_for(w, 4, 1, CommBackend::local);
  const CommPlan plan = Zero3Plans({.shard_ranks = 2}).comm_plan(shape);
  std::int64_t far = 0;
  for (const auto& [op, times] : plan.count)
    if (op.stride == 2) far += op.elements.value() * times;
  EXPECT_EQ(far, ParamLayout(w.model, WorldSize{2}).arena_size().value() / 2);
  EXPECT_EQ(test::input_error([&] { (void)Zero3Plans({.shard_ranks = 3}).memory_plan(shape); }),
            "64|shard_ranks: 4 ranks cannot be divided into groups of 3|--set shard_ranks=1, 2 or 4");
}

/// Requires equal values of every named tensor, even if persist_below has moved tensors between segments.
void expect_named_tensors_equal(const test::RankResult& rank, const ParamLayout& layout,
                                const test::RankResult& expected, const ParamLayout& plain) {
  std::int64_t compared = 0, held = 0;
  for (const StateSlice& slice : rank.state)
    for (const ParamTensor& t : layout.unit(slice.unit).tensors) {
      const Range shared{std::max(slice.range.begin, t.offset),
                         std::min(slice.range.end, t.offset + t.numel())};
      if (t.segment != slice.segment || shared.size() <= 0) continue;
      held += shared.size();
      for (const StateSlice& whole : expected.state) {
        if (whole.purpose != slice.purpose || whole.unit != slice.unit) continue;
        const std::int64_t from = plain.find(slice.unit, t.name)->offset + shared.begin - t.offset;
        EXPECT_TRUE(at::equal(slice.copy().narrow(0, shared.begin - slice.range.begin, shared.size()),
                              whole.copy().narrow(0, from, shared.size())))
            << name_of(slice.purpose) << " " << t.name;
        compared += shared.size();
      }
    }
  EXPECT_GT(held, 0);
  EXPECT_EQ(compared, held);
}

/// Requires that the parameters used for computation are the updated ones, rounded.
void expect_parameters_are_the_master_rounded(const test::RankResult& rank) {
  std::int64_t masters = 0;
  for (const StateSlice& master : rank.state) {
    if (master.purpose != Purpose::master) continue;
    ++masters;
    for (const StateSlice& params : rank.state) {
      if (params.purpose != Purpose::parameters || params.unit != master.unit ||
          params.segment != master.segment)
        continue;
      EXPECT_TRUE(
          at::equal(params.copy().narrow(0, master.range.begin - params.range.begin, master.range.size()),
                    master.copy().to(at::kBFloat16)))
          << "unit " << master.unit;
    }
  }
  EXPECT_GT(masters, 0);
}

/// Dtypes, and the number of micro-batches per rank. bf16 sums after every micro-batch are absent because
/// they have no zero_reference: lesson 00 adds ranks in the gradients' dtype, lesson 01 after the last
/// micro-batch.
enum class Numbers {
  f32_one,
  f32_several,
  bf16_one,
  bf16_beside_f32_gradients_one,
  bf16_beside_f32_gradients_several
};

/// The settings that all three lessons have.
struct ZeroSetting {
  int world;
  Workload workload;
  bool delays, evaluates;  // random delays; an evaluation between steps
};

ZeroSetting setting_of(test::Choose& choose) {
  ZeroSetting s{.world = choose("world", {1, 2, 3, 4}),
                .workload = odd_workload(),
                .delays = false,
                .evaluates = false};
  Workload& w = s.workload;
  w.model.tied = choose("tied", {true, false});
  w.batch.micro = choose("rows", {1, 2});
  w.activations =
      choose("activations", {Activations::keep, Activations::recompute_gelu, Activations::recompute});
  const auto numbers =
      choose("numbers", {Numbers::f32_one, Numbers::f32_several, Numbers::bf16_one,
                         Numbers::bf16_beside_f32_gradients_one, Numbers::bf16_beside_f32_gradients_several});
  if (numbers >= Numbers::bf16_one) w.precision.dtype = DType::bf16;
  if (numbers == Numbers::bf16_one) w.precision.grad_dtype = w.precision.reduce_dtype = DType::bf16;
  const bool several =
      numbers == Numbers::f32_several || numbers == Numbers::bf16_beside_f32_gradients_several;
  w.batch.global = w.batch.micro * s.world * (several ? 3 : 1);
  s.delays = choose("delays", {false, true});
  s.evaluates = choose("evaluates", {false, true});
  return s;
}

Zero1Options options_of(test::Choose& choose, Zero1Options) {
  return {.overlap = choose("overlap", {true, false})};
}

// The values of bucket: 0, each unit is sent from where its gradients are; then sizes smaller than a slice's
// alignment, than a unit, of several units, and larger than the model.
Zero2Options options_of(test::Choose& choose, Zero2Options) {
  return {.bucket = choose("bucket", {0, 1, 1000, 7000, 1'000'000}),
          .overlap = choose("overlap", {true, false})};
}

// The values of persist_below: nothing stays whole, vectors of a width, matrices too, everything.
Zero3Options options_of(test::Choose& choose, Zero3Options) {
  return {.prefetch = choose("prefetch", {0, 1, 2, 5}),
          .reshard_after_forward = choose("reshard", {true, false}),
          .persist_below = choose("persist_below", {0, 21, 500, 100'000})};  // shard_ranks: a test of its own
}

template <class Options>
std::int64_t persist_below(const Options& options) {
  if constexpr (std::is_same_v<Options, Zero3Options>) return options.persist_below;
  return 0;
}

constexpr std::int64_t kEvaluatedStep = 1;
std::int64_t pair_steps() { return test::all_settings() ? 20 : 6; }

// For bf16 gradients the reference is lesson 01, which rounds a sum over ranks once, like lessons 02 to 04.
test::RankResult zero_reference(const ZeroSetting& s, ReduceEvery every) {
  const std::optional<std::int64_t> after = s.evaluates ? std::optional(kEvaluatedStep) : std::nullopt;
  if (s.workload.precision.grad_dtype == DType::bf16)
    return test::run_local<DataParallel>(s.world, s.workload, {}, pair_steps(), {}, after).at(0);
  return test::run_local<ReferenceOrder>(1, s.workload, {.virtual_ranks = s.world, .reduce_every = every},
                                         pair_steps(), {}, after)
      .at(0);
}

void expect_equal_named_tensors_of_world(const std::vector<test::RankResult>& ranks, const ZeroSetting& s,
                                         std::int64_t below, const test::RankResult& expected) {
  const ParamLayout layout(s.workload.model, WorldSize{s.world}, below),
      plain(s.workload.model, WorldSize{s.world});
  expect_all_state_named(ranks, layout.arena_size().value());
  for (const test::RankResult& rank : ranks) {
    EXPECT_EQ(rank.losses, expected.losses);
    EXPECT_EQ(rank.norms, expected.norms);
    EXPECT_DOUBLE_EQ(rank.evaluation, expected.evaluation);
    test::expect_as_planned(rank);
    expect_named_tensors_equal(rank, layout, expected, plain);
  }
}

template <Lesson S>
void expect_equal_to_reference(const ZeroSetting& s, const typename S::Options& options) {
  const test::RankResult expected =
      zero_reference(s, std::is_same_v<S, Zero1> ? ReduceEvery::step : ReduceEvery::micro_batch);
  const auto ranks = test::run_local<S>(s.world, s.workload, options, pair_steps(),
                                        s.delays ? test::Wrap(delayed) : test::Wrap(),
                                        s.evaluates ? std::optional(kEvaluatedStep) : std::nullopt);
  if (persist_below(options) == 0) {
    expect_equal_world(ranks, expected);
  } else {
    expect_equal_named_tensors_of_world(ranks, s, persist_below(options), expected);
  }
  for (const test::RankResult& rank : ranks) {
    EXPECT_DOUBLE_EQ(rank.evaluation_between, expected.evaluation_between);
    if (s.workload.precision.has_master()) expect_parameters_are_the_master_rounded(rank);
  }
  // An evaluation changes nothing: the next step does not compute with what it published, gathered or left in
  // a buffer.
  EXPECT_EQ(expected.evaluation_between != 0, s.evaluates);
  EXPECT_NE(expected.evaluation_between, expected.evaluation);
}

/// In the worlds of `world` ranks every pair of values of two options occurs. The world is an option too, so
/// only all worlds together contain all pairs.
template <Lesson S>
void expect_every_pair(int world) {
  struct Case {
    ZeroSetting setting;
    typename S::Options options;
    std::string text;
  };
  int run = 0;
  for (const Case& c : test::Choose::every_pair_of([](test::Choose& choose) {
         const ZeroSetting setting = setting_of(choose);
         const auto options = options_of(choose, typename S::Options{});
         return Case{setting, options, choose.text()};
       })) {
    if (c.setting.world != world) continue;
    SCOPED_TRACE(c.text);
    expect_equal_to_reference<S>(c.setting, c.options);
    ++run;
  }
  EXPECT_GE(run, 5) << "as many as there are kinds of numbers";
}

TEST_P(ZeroWorlds, Zero1EveryPair) { expect_every_pair<Zero1>(GetParam()); }
TEST_P(ZeroWorlds, Zero2EveryPair) { expect_every_pair<Zero2>(GetParam()); }
TEST_P(ZeroWorlds, Zero3EveryPair) { expect_every_pair<Zero3>(GetParam()); }

}  // namespace
}  // namespace sc
