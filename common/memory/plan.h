// Memory predicted by formulas before anything is allocated. No torch, so that any build plans GPU runs.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/mesh.h"
#include "common/base/types.h"
#include "common/config/workload.h"
#include "common/memory/formula.h"
#include "common/memory/purpose.h"

namespace sc {

enum class DeviceKind { cpu, cuda };
/// The arithmetic of a run; `deterministic` is `fused` with a fixed order of sums in attention's backward
/// too.
enum class OpsBackend { aten, fused, deterministic };
enum class CommBackend { local, mpi, nccl, staged };
constexpr std::string_view name_of(CommBackend backend) {
  constexpr std::string_view kNames[] = {"local", "mpi", "nccl", "staged"};
  return kNames[static_cast<int>(backend)];
}

/// Everything a plan depends on. Plans differ between ranks only along the axes of stages and tensor ranks.
struct RunShape {
  Workload workload;
  Mesh mesh;
  Rank rank{0};
  DeviceKind device = DeviceKind::cpu;
  OpsBackend ops = OpsBackend::aten;
  CommBackend comm = CommBackend::local;
  int threads = 1;              // intra-op threads of a rank, on which attention's CPU scratch depends
  bool cudnn_attention = true;  // cuDNN has a kernel for this attention; a plan without a GPU assumes it
  /// Positions at which a row's runs of tokens begin, each of as many tokens, in this order.
  std::vector<std::int64_t> starts = {0};

  /// This rank's coordinate on an axis.
  [[nodiscard]] std::int64_t at(Axis axis) const { return mesh.at(axis, rank); }
};

/// One rank's micro-batches in a step; rounded up in a plan for a world that does not divide them.
inline std::int64_t micro_batches_of(const RunShape& shape) {
  return ceil_div(shape.workload.batch.global, shape.workload.batch.micro * shape.mesh.size(Axis::data));
}

// [anchor: declared-once]
/// One buffer, declared once: the plan counts it, and PlannedBuffers allocates it from the same declaration.
struct Buffer {
  Purpose purpose{};
  std::string name;  // in the ledger, e.g. "grads"; equal buffers share a name
  Formula elements;
  DType dtype = DType::u8;  // with u8, elements are bytes
  Place place = Place::device;
  [[nodiscard]] Bytes bytes() const { return bytes_of(Elements(elements.value()), dtype); }
  /// The buffer's bytes as a formula for the reader, e.g. "4 P".
  [[nodiscard]] std::string formula() const {
    return dtype == DType::u8 ? elements.text() : (size_of(dtype) * elements).text();
  }
  bool operator==(const Buffer&) const = default;
};

/// The bytes of one rank at its peak, by purpose and place: the sum of all buffers, which live through the
/// run.
class MemoryPlan {
 public:
  void add(Buffer buffer) { items_.push_back(std::move(buffer)); }
  void add_nonempty(Buffer buffer) {
    if (buffer.elements.value() > 0) add(std::move(buffer));
  }
  [[nodiscard]] const std::vector<Buffer>& items() const { return items_; }
  [[nodiscard]] Bytes of(Purpose purpose, Place place = Place::device) const {
    Bytes sum;
    for (const Buffer& item : items_)
      if (item.purpose == purpose && item.place == place) sum += item.bytes();
    return sum;
  }
  /// Bytes by purpose, place and name: the sum over the buffers that have all three in common.
  [[nodiscard]] ByName by_name() const {
    ByName sums;
    for (const Buffer& item : items_) sums[{item.purpose, item.place, item.name}] += item.bytes();
    return sums;
  }
  [[nodiscard]] Bytes total(Place place = Place::device) const {
    Bytes sum;
    for (const Buffer& item : items_)
      if (item.place == place) sum += item.bytes();
    return sum;
  }
  bool operator==(const MemoryPlan&) const = default;

 private:
  std::vector<Buffer> items_;
};

/// The names whose bytes differ from the plan; one that only one side has counts as 0 bytes on the other.
struct PlannedFound {
  Bytes planned, found;
};
inline std::map<BufferName, PlannedFound> differences(const ByName& planned, const ByName& found) {
  std::map<BufferName, PlannedFound> all;
  for (const auto& [buffer, bytes] : planned) all[buffer].planned = bytes;
  for (const auto& [buffer, bytes] : found) all[buffer].found = bytes;
  std::erase_if(all, [](const auto& entry) { return entry.second.planned == entry.second.found; });
  return all;
}

}  // namespace sc
