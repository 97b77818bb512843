// What lesson 06 holds, sends and moves over the disk, known before a run; and its settings. No torch.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/offload/options.h"
#include "common/storage/block_io.h"
#include "common/strategy/plans.h"

namespace sc {

/// Where this rank's slice of the gradients waits for the norm, and for its piece's turn.
enum class GradsAt { device, host };

/// Where this rank's slice of the parameters is between steps.
enum class ParamsAt { device, host, disk };

struct InfinityOptions : HostOptions {
  std::int64_t buffers = 4;  // pieces of states that are in memory at a time
  GradsAt grads_at = GradsAt::device;
  ParamsAt params_at = ParamsAt::device;
  std::string disk = ".";                // a directory on it
  IoEngine engine = IoEngine::io_uring;  // the wanted one
  std::int64_t block = 1 << 20;          // bytes of one request
  std::int64_t depth = 16;               // requests in flight
  double disk_mbps = 0;                  // the disk is no faster; 0: as fast as it is
  /// Tests: what stands between the file and the engine. No key.
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
