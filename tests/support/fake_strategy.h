// A strategy that holds state given by a test, and a world of threads with one such strategy each.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "common/comm/local_communicator.h"
#include "common/strategy/strategy.h"

namespace sc::test {

class FakeStrategy final : public Strategy {
 public:
  std::vector<StateSlice> slices;
  std::vector<InFlight> flying = {};
  const ParamLayout* of_layout = nullptr;
  std::function<void()> in_flight_ends = {};  // in quiet()

  StepResult train_step(std::span<const Batch> /*batches*/) override {
    throw std::logic_error("a fake does not train");
  }
  void quiet() override {
    if (in_flight_ends) in_flight_ends();
  }
  void forward_loss(const Batch& /*batch*/, at::Tensor& /*sums*/) override {
    throw std::logic_error("a fake does not evaluate");
  }
  at::Tensor& sums() override { throw std::logic_error("a fake does not evaluate"); }
  [[nodiscard]] std::vector<StateSlice> state() const override { return slices; }
  std::vector<InFlight> in_flight() override { return flying; }
  bool resume(const ResumeFrom& from) override {
    from.restore();
    return true;
  }
  [[nodiscard]] const ParamLayout& layout() const override {
    if (of_layout == nullptr) throw std::logic_error("a fake has no layout");
    return *of_layout;
  }
};

/// Runs `rank_main` on `world` ranks at once, and returns what each rank threw (null: nothing).
inline std::vector<std::exception_ptr> on_ranks(int world,
                                                const std::function<void(Communicator&)>& rank_main) {
  LocalWorld ranks(world);
  std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(world));
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < world; ++r)
      threads.emplace_back([&, r] {
        const std::unique_ptr<Communicator> comm = ranks.communicator(Rank{r});
        try {
          rank_main(*comm);
          EXPECT_EQ(comm->dropped_tickets(), 0);
        } catch (...) {
          thrown[static_cast<std::size_t>(r)] = std::current_exception();
        }
      });
  }
  return thrown;
}

}  // namespace sc::test
