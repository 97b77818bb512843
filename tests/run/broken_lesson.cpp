// Lesson 01 with one planted fault (`--set fault=<name>`), which the checks of run_lesson() must notice.
// tests/processes runs the program.
#include <ATen/ops/empty.h>

#include <optional>
#include <thread>

#include "common/comm/forwarding_communicator.h"
#include "common/optim/grad_norm.h"
#include "common/run/run_lesson.h"
#include "lessons/01_data_parallel/data_parallel.h"

namespace sc {
namespace {

enum class Wrong { nothing, allocation, buffer, broadcast, purpose, unit, ticket, replica, nonfinite };

struct BrokenOptions {
  Wrong fault = Wrong::nothing;
};

/// A communicator that waits for all-reduces of four numbers inside issue() and returns no ticket for them,
/// so that no wait is recorded.
class DroppingCommunicator : public ForwardingCommunicator {
 public:
  DroppingCommunicator(Communicator& inner, bool drops) : ForwardingCommunicator(inner), drops_(drops) {}
  Ticket issue(const Operation& op, const at::Tensor& from, const at::Tensor& to,
               std::optional<Rank> peer) override {
    Ticket ticket = ForwardingCommunicator::issue(op, from, to, peer);
    if (!drops_ || op.kind != CommKind::all_reduce || op.elements != Elements(4)) return ticket;
    while (!ticket.ready()) std::this_thread::yield();
    return {};
  }

 private:
  bool drops_;
};

constexpr DataParallelOptions kRight{.bucket = {}, .overlap = true, .verify_replicas = 1};

class BrokenPlans final : public PlansWith<BrokenPlans, BrokenOptions> {
 public:
  using PlansWith::PlansWith;
  [[nodiscard]] MemoryPlan memory_plan(const RunShape& shape) const override {
    return DataParallelPlans(kRight).memory_plan(shape);
  }
  [[nodiscard]] CommPlan comm_plan(const RunShape& shape) const override {
    CommPlan plan;
    for (const auto& [planned, times] : DataParallelPlans(kRight).comm_plan(shape).count) {
      Operation op = planned;
      if (options_.fault == Wrong::purpose && op.unit == 0) op.purpose = OpPurpose::parameters;
      if (options_.fault == Wrong::unit && op.unit == 1) op.unit = 2;
      plan.add(op, times);
    }
    return plan;
  }

 private:
  [[nodiscard]] FieldTable<Options> table() const override {
    FieldTable<Options> table;
    table.add({"fault", "", "what goes wrong"},
              choice<Wrong>({{"nothing", Wrong::nothing},
                             {"allocation", Wrong::allocation},
                             {"buffer", Wrong::buffer},
                             {"broadcast", Wrong::broadcast},
                             {"purpose", Wrong::purpose},
                             {"unit", Wrong::unit},
                             {"ticket", Wrong::ticket},
                             {"replica", Wrong::replica},
                             {"nonfinite", Wrong::nonfinite}}),
              &Options::fault);
    return table;
  }
};

class Broken final : public Strategy {
 public:
  using Plans = BrokenPlans;

  Broken(RunContext& context, const BrokenOptions& options)
      : fault_(options.fault),
        comm_(context.comm, fault_ == Wrong::ticket),
        context_{context.shape, comm_, context.ledger, context.scalars, context.copies, context.timeline},
        lesson_(context_, kRight) {}

  StepResult train_step(std::span<const Batch> batches) override {
    StepResult result = lesson_.train_step(batches);
    if (fault_ == Wrong::nonfinite) result.sums.mutable_data_ptr<double>()[kNonFinite] = 1;
    if (++steps_ != 2) return result;
    constexpr std::int64_t kMebibyte = 1 << 20;
    if (fault_ == Wrong::allocation) kept_ = at::empty({kMebibyte}, at::kByte);
    if (fault_ == Wrong::buffer)
      kept_ = context_.ledger.allocate(Purpose::stash, "kept", {kMebibyte}, DType::u8);
    if (fault_ == Wrong::broadcast) comm_.broadcast(result.grad_norm, Rank{0}).wait();
    if (fault_ == Wrong::replica && to_int(comm_.rank()) == to_int(comm_.size()) - 1) {
      for (const StateSlice& slice : lesson_.state())
        if (slice.purpose == Purpose::parameters && slice.unit == 1) spoil(slice);
    }
    return result;
  }
  static void spoil(const StateSlice& params) {
    at::Tensor first = at::empty({1}, at::kFloat);
    params.read({0, 1}, first);
    params.write({0, 1}, first.add_(1e-6));
  }
  void quiet() override { lesson_.quiet(); }
  void forward_loss(const Batch& batch, at::Tensor& sums) override { lesson_.forward_loss(batch, sums); }
  at::Tensor& sums() override { return lesson_.sums(); }
  [[nodiscard]] std::vector<StateSlice> state() const override { return lesson_.state(); }
  void after_step(std::int64_t step) override { lesson_.after_step(step); }
  [[nodiscard]] const ParamLayout& layout() const override { return lesson_.layout(); }

 private:
  Wrong fault_;
  DroppingCommunicator comm_;
  RunContext context_;
  DataParallel lesson_;
  std::int64_t steps_ = 0;
  at::Tensor kept_;
};

}  // namespace
}  // namespace sc

int main(int argc, char** argv) {
  return sc::run_lesson<sc::Broken>({.name = "broken_lesson", .question = "What do the checks see?"}, argc,
                                    argv);
}
