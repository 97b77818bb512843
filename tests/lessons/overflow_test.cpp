// Tests lessons 02-06 and 10 if a gradient is not finite: no rank updates, whichever rank's slice it is in; a
// loss scale falls on all ranks alike and leaves no trace in the numbers.
#include <ATen/ops/equal.h>

#include <filesystem>
#include <limits>

#include "common/comm/forwarding_communicator.h"
#include "common/optim/grad_norm.h"
#include "common/optim/loss_scale.h"
#include "common/strategy/nonfinite.h"
#include "lessons/02_zero1/zero1.h"
#include "lessons/03_zero2/zero2.h"
#include "lessons/04_zero3/zero3.h"
#include "lessons/05_offload/offload.h"
#include "lessons/06_infinity/infinity.h"
#include "lessons/10_tensor_parallel/tensor_parallel.h"
#include "lessons/12_context_parallel/context_parallel.h"
#include "tests/support/fake_strategy.h"
#include "tests/support/harness.h"

namespace sc {
namespace {

/// Overflows once, when it is told to: puts an infinity into this rank's slice of a block's summed gradient.
class OverflowingCommunicator : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  void overflow_next(std::int64_t of_at_least = kOfABlock) { armed_ = true, of_at_least_ = of_at_least; }
  [[nodiscard]] bool armed() const { return armed_; }

  Ticket issue(const Operation& op, const at::Tensor& from, const at::Tensor& to,
               std::optional<Rank> peer) override {
    Ticket ticket = ForwardingCommunicator::issue(op, from, to, peer);
    if (!armed_ || op.kind != CommKind::reduce_scatter || to.numel() < of_at_least_) return ticket;
    armed_ = false;
    ticket.wait();
    to.select(0, 0).fill_(std::numeric_limits<double>::infinity());
    return {};
  }

 private:
  static constexpr std::int64_t kOfABlock = 1000;  // smaller ones begin with padding on some ranks
  bool armed_ = false;
  std::int64_t of_at_least_ = 0;
};

Workload sixteen_bits() {
  Workload w = test::odd_workload();
  w.precision = {.dtype = DType::bf16, .grad_dtype = DType::bf16, .reduce_dtype = DType::bf16};
  return w;
}

/// A lesson and its settings.
template <Lesson S>
struct Of {
  using L = S;
  static typename S::Options options() { return {}; }
};
// Lesson 06 with a window that pieces go through several times per step.
struct OfInfinity : Of<Infinity> {
  static InfinityOptions options() {
    InfinityOptions o;
    o.piece = 500, o.buffers = 3, o.block = 4096, o.disk = std::filesystem::temp_directory_path().string();
    return o;
  }
};
// Lesson 05 with updates that begin before the norm is known, so that they must be undone.
struct OfEarlyUpdates : Of<Offload> {
  static OffloadOptions options() { return {{.update = UpdateKind::early, .resident = 1, .piece = 500}}; }
};

/// One rank's lesson, stepped as run_lesson does it.
template <class Case>
struct SteppedByHand {
  using S = typename Case::L;
  SteppedByHand(Communicator& inner, const Workload& w, bool scales_loss)
      : comm(inner),
        rank(
            comm,
            test::shape_for(w, static_cast<int>(to_int(inner.size())), static_cast<int>(to_int(inner.rank())),
                            CommBackend::local, typename S::Plans(Case::options()).mesh(inner.size())),
            Case::options(), 1e-2, scales_loss) {}

  /// Makes a step; if `poisoned`, this rank's gradients are NaN. Returns whether the step's numbers say so.
  bool step(std::int64_t step, bool poisoned = false) {
    std::vector<Batch> batches = test::made_up_step(rank.shape, step);
    for (Batch& batch : batches) {
      if (rank.scalars.loss_scale.defined()) batch.scale.mul_(rank.scalars.loss_scale);
      if (poisoned) batch.scale.fill_(std::numeric_limits<double>::quiet_NaN());
    }
    return rank.lesson.train_step(batches).sums.template data_ptr<double>()[kNonFinite] != 0;
  }
  /// Copies of all that this rank holds between steps.
  std::vector<at::Tensor> held() {
    rank.lesson.quiet();
    std::vector<at::Tensor> values;
    for (const StateSlice& slice : rank.lesson.state())
      if (slice.purpose != Purpose::gradients && slice.purpose != Purpose::workspace)
        values.push_back(slice.copy());
    return values;
  }
  [[nodiscard]] std::int64_t updates() const { return rank.scalars.step.template item<std::int64_t>(); }
  [[nodiscard]] float loss_scale() const { return rank.scalars.loss_scale.template item<float>(); }
  OverflowingCommunicator comm;
  test::Alone<S> rank;
};

bool equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const at::Tensor& x, const at::Tensor& y) { return at::equal(x, y); });
}

/// Calls f(this rank's lesson) in worlds of two and of three ranks.
template <class Case, class F>
void on_worlds(const Workload& w, bool scales_loss, const F& f) {
  for (const int world : {2, 3}) {
    SCOPED_TRACE(world);
    const auto thrown = test::on_ranks(world, [&](Communicator& comm) {
      SteppedByHand<Case> lesson(comm, w, scales_loss);
      f(lesson);
      comm.barrier();  // nobody's work is still read
    });
    for (const std::exception_ptr& error : thrown)
      if (error) std::rethrow_exception(error);
  }
}

template <class Case>
class Overflow : public ::testing::Test {};
using Lessons = ::testing::Types<Of<Zero1>, Of<Zero2>, Of<Zero3>, Of<Offload>, OfEarlyUpdates, OfInfinity>;
TYPED_TEST_SUITE(Overflow, Lessons);

// With optim.nonfinite=skip one rank's gradients are NaN, and after the sum every rank's.
TYPED_TEST(Overflow, AStepThatIsNotFiniteChangesNothing) {
  for (const Workload& w : {test::odd_workload(), sixteen_bits()})
    on_worlds<TypeParam>(w, false, [](SteppedByHand<TypeParam>& lesson) {
      for (std::int64_t step = 0; step < 2; ++step) EXPECT_FALSE(lesson.step(step));
      const std::vector<at::Tensor> before = lesson.held();
      EXPECT_TRUE(lesson.step(2, lesson.comm.rank() == Rank{1}));
      EXPECT_TRUE(equal(lesson.held(), before));
      EXPECT_EQ(lesson.updates(), 2);
      EXPECT_FALSE(lesson.step(3)) << "nothing of it is left in a buffer";
      EXPECT_FALSE(equal(lesson.held(), before));
      EXPECT_EQ(lesson.updates(), 3);
    });
}

// With optim.nonfinite=stop every rank gets this message from run_lesson.
TYPED_TEST(Overflow, TheMessageNamesTheRankAndTheUnit) {
  on_worlds<TypeParam>(test::odd_workload(), false, [](SteppedByHand<TypeParam>& lesson) {
    EXPECT_FALSE(lesson.step(0));
    EXPECT_TRUE(lesson.step(1, lesson.comm.rank() == Rank{1}));
    std::string said;
    try {
      detail::throw_nonfinite(lesson.rank.lesson, 2.5, 1, lesson.rank.shape, lesson.comm);
    } catch (const ClaimError& error) {
      said = error.what();
    }
    EXPECT_EQ(said.find("step 1: the gradient is not finite, first seen in unit 4; it came from rank 1's own "
                        "micro-batches\n"),
              0U)
        << said;
  });
}

// One rank's slice alone overflows: all skip, and all halve the scale when it has happened often enough.
// Powers of two change no other bit, so that the good steps are those of a run without a scale.
TYPED_TEST(Overflow, OfOneSliceSkipsTheStepOnAllRanksAndHalvesTheScale) {
  for (const int spoiled : {0, 1}) {
    SCOPED_TRACE(spoiled);
    using Held = std::vector<std::vector<at::Tensor>>;  // of rank r in a world of N: [3 N + r]
    Held plain(4 * 3), scaled(4 * 3);
    const auto keep = [](Held& all, SteppedByHand<TypeParam>& lesson) {
      all[static_cast<std::size_t>(3 * to_int(lesson.comm.size()) + to_int(lesson.comm.rank()))] =
          lesson.held();
    };
    on_worlds<TypeParam>(sixteen_bits(), false, [&](SteppedByHand<TypeParam>& lesson) {
      for (const std::int64_t step : {0, 3}) EXPECT_FALSE(lesson.step(step));
      keep(plain, lesson);
    });
    on_worlds<TypeParam>(sixteen_bits(), true, [&](SteppedByHand<TypeParam>& lesson) {
      EXPECT_FALSE(lesson.step(0));
      const std::vector<at::Tensor> before = lesson.held();
      for (std::int64_t overflow = 1; overflow <= LossScale::kHysteresis; ++overflow) {
        EXPECT_EQ(lesson.loss_scale(), LossScale::kStart);
        if (lesson.comm.rank() == Rank{spoiled}) lesson.comm.overflow_next();
        EXPECT_TRUE(lesson.step(overflow));
        EXPECT_FALSE(lesson.comm.armed()) << "it has overflowed";
        EXPECT_TRUE(equal(lesson.held(), before));
      }
      EXPECT_EQ(lesson.loss_scale(), LossScale::kStart / 2);
      EXPECT_FALSE(lesson.step(3));
      EXPECT_EQ(lesson.updates(), 2);
      keep(scaled, lesson);
    });
    for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(equal(scaled[i], plain[i])) << i;
    EXPECT_FALSE(scaled[3 * 2 + 1].empty());
    EXPECT_FALSE(scaled[3 * 3 + 2].empty());
  }
}

// Tensor ranks share one model and one micro-batch: what one rank's summand spoils, in forward or backward,
// reaches all of them.
TEST(OverflowOfTensorRanks, SkipsTheStepOnAllRanksAndHalvesTheScale) {
  Workload w = sixteen_bits();
  w.model.heads = 5;
  w.model.vocab = 200;  // every rank has columns that count
  w.batch = {.sequence = 12, .global = 4, .micro = 2};
  on_worlds<Of<TensorParallel>>(w, true, [](SteppedByHand<Of<TensorParallel>>& lesson) {
    EXPECT_FALSE(lesson.step(0));
    const std::vector<at::Tensor> before = lesson.held();
    const auto skips = [&](std::int64_t step, bool poisoned) {
      EXPECT_EQ(lesson.loss_scale(), LossScale::kStart);
      EXPECT_TRUE(lesson.step(step, poisoned));
      EXPECT_TRUE(equal(lesson.held(), before));
    };
    static_assert(LossScale::kHysteresis == 2);
    if (lesson.comm.rank() == Rank{1}) lesson.comm.overflow_next(1);
    skips(1, false);
    EXPECT_FALSE(lesson.comm.armed()) << "it has overflowed";
    skips(2, lesson.comm.rank() == Rank{1});  // in its part of the logits' gradient alone
    EXPECT_EQ(lesson.loss_scale(), LossScale::kStart / 2);
    EXPECT_FALSE(lesson.step(3)) << "nothing of it is left in a buffer";
    EXPECT_FALSE(equal(lesson.held(), before));
    EXPECT_EQ(lesson.updates(), 2);
  });
}

// A context rank's tokens are its own: a gradient that is infinite on one is so in the sum over all.
TEST(OverflowOfContextRanks, OfOneRanksTokensSkipsTheStepOnAll) {
  Workload w = sixteen_bits();
  w.batch = {.sequence = 12, .global = 4, .micro = 2};
  on_worlds<Of<ContextParallel>>(w, true, [](SteppedByHand<Of<ContextParallel>>& lesson) {
    EXPECT_FALSE(lesson.step(0));
    const std::vector<at::Tensor> before = lesson.held();
    for (std::int64_t overflow = 1; overflow <= LossScale::kHysteresis; ++overflow) {
      EXPECT_EQ(lesson.loss_scale(), LossScale::kStart);
      EXPECT_TRUE(lesson.step(overflow, lesson.comm.rank() == Rank{1}));
      EXPECT_TRUE(equal(lesson.held(), before));
    }
    EXPECT_EQ(lesson.loss_scale(), LossScale::kStart / 2);
    EXPECT_FALSE(lesson.step(3)) << "nothing of it is left in a buffer";
    EXPECT_FALSE(equal(lesson.held(), before));
    EXPECT_EQ(lesson.updates(), 2);
  });
}

}  // namespace
}  // namespace sc
