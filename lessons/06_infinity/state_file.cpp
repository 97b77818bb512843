#include "state_file.h"

#include <algorithm>

namespace sc {

StateFile::StateFile(std::shared_ptr<FileOps> file_ops, const BlockFile::Options& options,
                     const std::vector<Bytes>& extents, std::shared_ptr<CommRecord> record,
                     const UpdateClock& updates)
    : ops_(std::move(file_ops)),
      blocks_(*ops_, options, extents),
      transfers_(blocks_, std::move(record),
                 [this](CommKind kind, DiskTransfer::Clock::time_point issued, DiskTransfer transfer) {
                   clock_.issued(kind, issued, std::move(transfer));
                 }),
      updates_(updates) {}

OpEnd StateFile::read(std::size_t extent, std::span<std::byte> into, const What& what, std::int64_t update) {
  return keep(update, transfers_.read(extent, into, what, updates_.step_after(update)));
}

OpEnd StateFile::write(std::size_t extent, std::span<const std::byte> from, const What& what,
                       std::int64_t update) {
  return keep(update, transfers_.write(extent, from, what, updates_.step_after(update)));
}

OpEnd StateFile::keep(std::int64_t update, Ticket ticket) {
  OpEnd end = ticket.end();
  const std::lock_guard lock(mutex_);
  kept_.push_back({update, std::move(ticket)});
  return end;
}

void StateFile::end_updates(std::int64_t updates) {
  std::vector<Kept> ended;
  {
    const std::lock_guard lock(mutex_);
    const auto first = std::stable_partition(kept_.begin(), kept_.end(),
                                             [&](const Kept& kept) { return kept.update >= updates; });
    std::move(first, kept_.end(), std::back_inserter(ended));
    kept_.erase(first, kept_.end());
  }
  for (Kept& kept : ended) kept.ticket.wait_on_host();
}

void StateFile::wait() {
  const std::lock_guard lock(mutex_);
  for (Kept& kept : kept_) kept.ticket.end().wait();
}

}  // namespace sc
