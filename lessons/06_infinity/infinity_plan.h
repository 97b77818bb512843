// What lesson 06 holds, sends and moves over the disk, known before a run, and its settings. No torch.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/offload/options.h"
#include "common/storage/block_io.h"
#include "common/strategy/plans.h"

namespace sc {

/// Where this rank's slice of the gradients waits for the norm and for its piece's turn.
enum class GradsAt { device, host };

/// Where this rank's slice of the parameters is between steps.
enum class ParamsAt { device, host, disk };

struct InfinityOptions : HostOptions {
  /// How many pieces' states are in memory at a time.
  std::int64_t buffers = 4;
  GradsAt grads_at = GradsAt::device;
  ParamsAt params_at = ParamsAt::device;
  /// A directory on the disk.
  std::string disk = ".";
  /// The engine that is wanted; the other one is used where the machine refuses it.
  IoEngine engine = IoEngine::io_uring;
  /// The bytes of one request, and how many requests are in flight.
  std::int64_t block = 1 << 20, depth = 16;
  /// The most that the disk moves, in 10^6 bytes per second; 0 means as fast as it is.
  double disk_mbps = 0;
  /// Tests put something between the file and the engine; there is no key for it.
  std::function<std::unique_ptr<BlockIo>(std::unique_ptr<BlockIo>)> wrap = {};
};

class InfinityPlans final : public PlansWith<InfinityPlans, InfinityOptions> {
 public:
  using PlansWith::PlansWith;
  [[nodiscard]] MemoryPlan memory_plan(const RunShape& shape) const override;
  [[nodiscard]] CommPlan comm_plan(const RunShape& shape) const override;
  [[nodiscard]] Contents contents(const RunShape& shape) const override;
  [[nodiscard]] Facts facts(const RunShape& shape) const override;
  [[nodiscard]] std::string predict(const RunShape& shape) const override;

 private:
  [[nodiscard]] FieldTable<Options> table() const override;
};

}  // namespace sc
