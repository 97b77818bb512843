// Memory predicted from formulas, before anything is allocated. No torch: CUDA plans work in the cpu preset.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/types.h"
#include "common/config/workload.h"
#include "common/memory/purpose.h"

namespace sc {

enum class DeviceKind { cpu, cuda };
/// deterministic: fused, with attention's backward in a fixed order too.
enum class OpsBackend { aten, fused, deterministic };
enum class CommBackend { local, mpi, nccl, staged };
constexpr std::string_view name_of(CommBackend backend) {
  constexpr std::string_view kNames[] = {"local", "mpi", "nccl", "staged"};
  return kNames[static_cast<int>(backend)];
}

/// Everything a plan depends on. `rank` matters where ranks differ (pipeline stages); the slices of one stage
/// are equal.
struct RunShape {
  Workload workload;
  WorldSize world{1};
  Rank rank{0};
  DeviceKind device = DeviceKind::cpu;
  OpsBackend ops = OpsBackend::aten;
  CommBackend comm = CommBackend::local;
  int threads = 1;  // intra-op threads of a rank: attention's scratch on the CPU depends on it
};

/// Micro-batches of one rank in a step; rounded up in a plan for a world that does not divide them evenly.
inline std::int64_t micro_batches_of(const RunShape& shape) {
  return ceil_div(shape.workload.batch.global, shape.workload.batch.micro * to_int(shape.world));
}

/// Bytes of one rank at its peak, by purpose. Every buffer lives from construction to the end, so the peak of
/// the sum is the sum.
class MemoryPlan {
 public:
  struct Item {
    Purpose purpose;
    std::string name;     // the name the ledger will see, e.g. "grads"
    std::string formula;  // for the reader: "4 P"
    Bytes bytes;
  };
  void add(Purpose purpose, std::string name, std::string formula, Bytes bytes) {
    items_.push_back({purpose, std::move(name), std::move(formula), bytes});
  }
  [[nodiscard]] const std::vector<Item>& items() const { return items_; }
  [[nodiscard]] Bytes of(Purpose purpose) const {
    Bytes sum;
    for (const Item& item : items_)
      if (item.purpose == purpose) sum += item.bytes;
    return sum;
  }
  /// Bytes in this rank's memory: everything but host (of a GPU rank) and disk.
  [[nodiscard]] Bytes total() const {
    Bytes sum;
    for (const Item& item : items_)
      if (item.purpose != Purpose::host && item.purpose != Purpose::disk) sum += item.bytes;
    return sum;
  }

 private:
  std::vector<Item> items_;
};

}  // namespace sc
