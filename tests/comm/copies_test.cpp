// Tests copies between device and host: their order, who may see what when, and what the record knows of
// them.
#include "common/comm/copies/copies.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <latch>

#include "common/comm/copies/recording_copies.h"
#include "common/comm/local_communicator.h"
#include "common/comm/recording_communicator.h"
#include "tests/support/answers.h"
#include "tests/support/delaying_copies.h"
#include "tests/watch/refusal.h"

namespace sc {
namespace {

std::string refusal(const std::function<void()>& f) {
  const InputError error = test::refusal_of(f);
  return error.where() + ": " + error.message();
}

TEST(Copies, CarryValuesBothWaysInOrder) {
  const std::unique_ptr<Copies> copies = make_host_copies();
  at::Tensor device = at::arange(1000, at::kFloat), host = at::empty({1000}, at::kFloat),
             back = at::empty({1000}, at::kFloat);
  copies->to_host(device, host).wait_on_host();
  EXPECT_TRUE(at::equal(host, device));
  Ticket first = copies->to_device(host, back);
  first.wait();
  first.wait();  // idempotent
  EXPECT_TRUE(at::equal(back, device));
  // One lane runs its copies in order, so the second copy's values stand.
  const at::Tensor ones = at::full({1000}, 1.0F), twos = at::full({1000}, 2.0F);
  Ticket a = copies->to_host(ones, host), b = copies->to_host(twos, host);
  b.wait_on_host();
  EXPECT_TRUE(a.ready());
  EXPECT_TRUE(at::equal(host, twos));
  a.wait();
  EXPECT_EQ(copies->dropped_tickets(), 0);
  { const Ticket dropped = copies->to_host(ones, host); }
  EXPECT_EQ(copies->dropped_tickets(), 1);
}

TEST(Copies, RefuseWhatDoesNotMatch) {
  const std::unique_ptr<Copies> copies = make_host_copies();
  at::Tensor four = at::full({4}, 1.0F), five = at::full({5}, 1.0F), half = at::full({4}, 1.0, at::kBFloat16),
             undefined, column = at::full({4, 2}, 1.0F).select(1, 0);
  test::expect_texts(
      {{refusal([&] { copies->to_host(four, five).wait(); }), "to_host: 4 elements to 5"},
       {refusal([&] { copies->to_device(four, half).wait(); }), "to_device: from f32 to bf16"},
       {refusal([&] { copies->to_device(undefined, four).wait(); }), "to_device: a tensor is not defined"},
       {refusal([&] { copies->to_host(column, four).wait(); }), "to_host: a tensor is not contiguous"}});
}

/// Copies that begin when the test lets them.
class GatedCopies final : public Copies {
 public:
  explicit GatedCopies(std::latch& gate) : gate_(gate) {}
  [[nodiscard]] std::int64_t dropped_tickets() const override { return inner_->dropped_tickets(); }
  [[nodiscard]] After issued() override { return inner_->issued(); }
  Ticket issue(const Operation& op, const at::Tensor& from, const at::Tensor& to, OfStep of_step,
               const After& after) override {
    gate_.wait();
    return inner_->issue(op, from, to, of_step, after);
  }

 private:
  std::latch& gate_;
  const std::unique_ptr<Copies> inner_ = make_host_copies();
};

// Delayed copies show what a reader would see who forgot the wait.
TEST(Copies, DelayedOnesShowNanUntilTheWait) {
  std::latch gate(1);
  DelayingCopies copies(std::make_unique<GatedCopies>(gate), 3);
  const at::Tensor device = at::full({64}, 1.0F);
  at::Tensor host = at::full({64}, 5.0F);
  Ticket ticket = copies.to_host(device, host);
  EXPECT_TRUE(std::isnan(host.const_data_ptr<float>()[63]));
  gate.count_down();
  ticket.wait_on_host();
  EXPECT_TRUE(at::equal(host, device));
}

// Copies are counted like messages, by phase and step; they send nothing over the wire, and the watchdog sees
// one that waits.
TEST(Copies, AreOperationsOfTheRecord) {
  const std::unique_ptr<Communicator> alone = LocalWorld(1).communicator(Rank{0});
  RecordingCommunicator comm(*alone, {.trace_steps = 3});
  std::latch gate(1);
  RecordingCopies copies(std::make_unique<DelayingCopies>(std::make_unique<GatedCopies>(gate), 3),
                         comm.shared_record());
  comm.set_phase("train");
  comm.set_step(2);
  at::Tensor device = at::full({64}, 1.0, at::kBFloat16), host = at::empty({64}, at::kBFloat16);
  Ticket down = copies.to_host(device, host, {OpPurpose::gradients, 3});
  const std::vector<OutstandingOp> out = comm.record().outstanding();
  gate.count_down();
  down.wait_on_host();
  copies.to_device(host, device).wait();
  at::Tensor two = host.narrow(0, 0, 2);
  EXPECT_THROW(copies.to_device(host, two).wait(), InputError);
  CommPlan expected;
  expected.add({CommKind::to_host, DType::bf16, Elements(64), WorldSize{1}}, {OpPurpose::gradients, 3});
  expected.add({CommKind::to_device, DType::bf16, Elements(64), WorldSize{1}});
  EXPECT_TRUE(comm.recorded("train", 2) == expected) << "the refused one counts nowhere";
  EXPECT_EQ(moved_bytes(expected, Way::wire, Rank{0}), Bytes(0));
  EXPECT_EQ(moved_bytes(expected, Way::link, Rank{0}), Bytes(2 * 128));
  ASSERT_EQ(out.size(), 1u) << "the watchdog sees it";
  EXPECT_EQ(describe(out[0].op), "to_host of unit 3's gradients (64 bf16)");
  EXPECT_TRUE(comm.record().outstanding().empty());
  EXPECT_GT(comm.record().waited().count(), 0);
  ASSERT_EQ(comm.record().spans().size(), 2u);
  EXPECT_TRUE(comm.record().spans()[0].wait_ended);
}

}  // namespace
}  // namespace sc
