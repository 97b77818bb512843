#include "tests/exercises/window.h"

#include <algorithm>
#include <string_view>

#include "common/config/resolve.h"
#include "lessons/06_infinity/infinity_plan.h"
#include "lessons/06_infinity/window_plan.h"

namespace sc::exercise {
namespace {

constexpr int kUpdates = 4;  // of which the first two are the way in

RunShape shape() {
  return {.workload = load_workload(kWindowWorkload),
          .mesh = {},
          .device = DeviceKind::cuda,
          .ops = OpsBackend::fused,
          .comm = CommBackend::nccl};
}

InfinityOptions options(const WindowCase& window) {
  InfinityOptions options;
  options.buffers = window.buffers, options.piece = window.piece;
  return options;
}

/// A disk that carries out its transfers one after another.
class Disk {
 public:
  explicit Disk(double mbps) : bytes_per_second_(1e6 * mbps) {}
  /// The time at which the disk has passed a piece's states that were asked for at `issued`.
  double pass(std::int64_t elements, double issued) {
    const auto bytes = static_cast<double>(extent_of(elements).value());
    return free_ = std::max(free_, issued) + bytes / bytes_per_second_;
  }

 private:
  double bytes_per_second_, free_ = 0;
};

}  // namespace

std::vector<std::int64_t> pieces_of(const WindowCase& window) {
  const RunShape rank = shape();
  std::vector<std::int64_t> elements;
  for (const Piece& piece :
       cut_pieces(ParamLayout(rank.workload.model, rank.mesh.world()), rank.rank, window.piece))
    elements.push_back(piece.range.size());
  return elements;
}

Bytes window_bytes(const WindowCase& window) {
  const MemoryPlan plan = InfinityPlans(options(window)).memory_plan(shape());
  Bytes sum;
  for (const Buffer& item : plan.items())
    if (item.name.starts_with("window of ")) sum += item.bytes();
  return sum;
}

double seconds_per_update(const WindowCase& window) {
  const std::vector<std::int64_t> pieces = pieces_of(window);
  const auto count = static_cast<std::int64_t>(pieces.size()),
             ahead = std::max<std::int64_t>(0, window.buffers - 2);
  const auto elements = [&](std::int64_t number) { return pieces[static_cast<std::size_t>(number % count)]; };
  Disk disk(window.disk_mbps);
  std::vector<double> read, written, ends;  // by number; ends: by update
  double now = 0;                           // of the thread that updates
  for (std::int64_t number = 0; number < kUpdates * count; ++number) {
    while (static_cast<std::int64_t>(read.size()) <= number + ahead) {
      const auto next = static_cast<std::int64_t>(read.size());
      if (next >= window.buffers)
        now = std::max(now, written[static_cast<std::size_t>(next - window.buffers)]);
      read.push_back(disk.pass(elements(next), now));
    }
    now = std::max(now, read[static_cast<std::size_t>(number)]);
    now += static_cast<double>(elements(number)) / (1e6 * window.adam_mparams_per_second);
    written.push_back(disk.pass(elements(number), now));
    if ((number + 1) % count == 0) ends.push_back(now);
  }
  return (ends[3] - ends[1]) / 2;
}

double seconds_by_formula(const WindowCase& window) {
  double disk = 0, adam = 0;
  for (const std::int64_t elements : pieces_of(window)) {
    disk += 2 * static_cast<double>(extent_of(elements).value()) / (1e6 * window.disk_mbps);
    adam += static_cast<double>(elements) / (1e6 * window.adam_mparams_per_second);
  }
  return window.buffers == 1 ? disk + adam : std::max(disk, adam);
}

}  // namespace sc::exercise
