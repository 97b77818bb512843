// A strategy with its type erased, so that what surrounds it is compiled once and not in every lesson.
#pragma once

#include "common/strategy/strategy.h"

namespace sc::detail {

class AnyStrategy {
 public:
  virtual ~AnyStrategy() = default;
  virtual StepResult train_step(std::span<const Batch> batches) = 0;
  virtual void quiet() = 0;
  virtual std::vector<StepResult> drain() = 0;
  virtual void forward_loss(const Batch& batch, at::Tensor& sums) = 0;
  virtual at::Tensor& sums() = 0;
  virtual std::vector<StateSlice> state() = 0;
  virtual void after_step(std::int64_t step) = 0;
  virtual std::string pending() = 0;
  virtual std::vector<InFlight> in_flight() = 0;
  virtual bool resume(const ResumeFrom& from) = 0;
  virtual std::optional<Timetable> timetable(Communicator& comm) = 0;
  [[nodiscard]] virtual const ParamLayout& layout() const = 0;
};

template <Strategy S>
class ErasedStrategy final : public AnyStrategy {
 public:
  ErasedStrategy(RunContext& context, const typename S::Options& options) : strategy_(context, options) {}
  StepResult train_step(std::span<const Batch> batches) override { return strategy_.train_step(batches); }
  void quiet() override { strategy_.quiet(); }
  std::vector<StepResult> drain() override { return sc::drain(strategy_); }
  void forward_loss(const Batch& batch, at::Tensor& sums) override { strategy_.forward_loss(batch, sums); }
  at::Tensor& sums() override { return strategy_.sums(); }
  std::vector<StateSlice> state() override { return strategy_.state(); }
  void after_step(std::int64_t step) override { sc::after_step(strategy_, step); }
  std::string pending() override { return pending_of(strategy_); }
  std::vector<InFlight> in_flight() override { return in_flight_of(strategy_); }
  bool resume(const ResumeFrom& from) override { return sc::resume(strategy_, from); }
  std::optional<Timetable> timetable(Communicator& comm) override { return timetable_of(strategy_, comm); }
  [[nodiscard]] const ParamLayout& layout() const override { return strategy_.layout(); }

 private:
  S strategy_;
};

}  // namespace sc::detail
