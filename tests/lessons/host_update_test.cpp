// The host's half of lesson 05 by itself: which piece is updated when, and what waits for it.
#include "lessons/05_offload/host_update.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "common/base/check.h"

namespace sc {
namespace {

using namespace std::chrono_literals;

/// An operation that ends when the test says so.
class Gate {
 public:
  void open() { open_ = true; }
  [[nodiscard]] OpEnd end() {
    return {[this] { return open_.load(); },
            [this] {
              while (!open_) std::this_thread::sleep_for(100us);
            }};
  }

 private:
  std::atomic<bool> open_ = false;
};

/// Two pieces of one element, 1, whose gradient is 1: an update at lr 0.5 takes half away.
class HostUpdateOfTwo : public ::testing::Test {
 protected:
  static std::vector<Piece> two_pieces() {
    const auto one_element = [](float value) { return at::full({1}, value, at::kFloat); };
    std::vector<Piece> pieces;
    for (int unit = 0; unit < 2; ++unit) {
      Piece p;
      p.unit = unit, p.range = {0, 1};
      p.grads[0] = one_element(1);
      p.master = one_element(1), p.momentum = one_element(0), p.variance = one_element(0);
      p.params = p.master;
      pieces.push_back(std::move(p));
    }
    return pieces;
  }
  UpdateOrder order(std::int64_t after_sends = 0) {
    return {.landed = {landed_[0].end(), landed_[1].end()},
            .scalars_landed = scalars_landed_.end(),
            .scalars = scalars_.data(),
            .after_sends = after_sends};
  }
  // After a failure the update may still wait.
  void TearDown() override {
    for (Gate* gate : {&landed_[0], &landed_[1], &scalars_landed_, &arrived_}) gate->open();
  }
  float parameter(std::size_t piece) { return update_.pieces()[piece].params.item<float>(); }
  // Has a thread that may begin done nothing? A slow one is not noticed; a prompt one is.
  void expect_untouched(std::size_t piece) {
    std::this_thread::sleep_for(5ms);
    EXPECT_FALSE(update_.ready(piece, 1));
    EXPECT_EQ(parameter(piece), 1);
  }

  std::array<Gate, 2> landed_;
  Gate scalars_landed_, arrived_;
  std::array<double, 4> scalars_ = {0.5, 1, 1, 0};  // lr, step, clip
  HostUpdate update_{two_pieces(), {.weight_decay = 0}, 1};
};

TEST_F(HostUpdateOfTwo, APieceIsUpdatedWhenItHasLanded) {
  landed_[1].open();
  update_.post(order());
  expect_untouched(1);  // without its learning rate
  scalars_landed_.open();
  update_.wait(1, 1);
  EXPECT_TRUE(update_.ready(1, 1));
  EXPECT_FALSE(update_.ready(1, 2));
  EXPECT_NEAR(parameter(1), 0.5, 1e-6);
  expect_untouched(0);
  landed_[0].open();
  update_.wait(0, 1);
  EXPECT_NEAR(parameter(0), 0.5, 1e-6);
}

TEST_F(HostUpdateOfTwo, WhatIsToBeSentFirstIsNotOverwritten) {
  for (Gate& gate : landed_) gate.open();
  scalars_landed_.open();
  update_.post(order(1));
  expect_untouched(0);
  update_.sent(0, arrived_.end(), true);
  expect_untouched(0);  // on its way
  arrived_.open();
  update_.wait(0, 1);
  expect_untouched(1);
  update_.release();  // nothing more is sent
  update_.wait(1, 1);
  EXPECT_NEAR(parameter(1), 0.5, 1e-6);
}

TEST_F(HostUpdateOfTwo, AnUpdateThatIsSkippedChangesNothing) {
  for (Gate& gate : landed_) gate.open();
  scalars_landed_.open();
  scalars_[2] = kNoUpdate;
  update_.post(order());
  update_.wait(0, 1);
  EXPECT_TRUE(update_.ready(0, 1));
  EXPECT_EQ(parameter(0), 1);
}

TEST_F(HostUpdateOfTwo, WhoWaitsIsToldWhatFailed) {
  landed_[1].open();
  scalars_landed_.open();
  UpdateOrder failing = order();
  failing.landed[0] = {[] { return true; }, [] { throw DeviceError("the copy failed"); }};
  update_.post(failing);
  EXPECT_THROW(update_.wait(0, 1), DeviceError);
  EXPECT_THROW(update_.wait(1, 2), DeviceError);
  EXPECT_FALSE(update_.ready(0, 0));
}

}  // namespace
}  // namespace sc
