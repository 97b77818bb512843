#include "common/comm/disk/recorded_file.h"

#include "common/comm/recorded_ticket.h"

namespace sc {
namespace {

class DiskTicket final : public TicketState {
 public:
  explicit DiskTicket(DiskTransfer transfer) : transfer_(std::move(transfer)) {}
  bool ready() override { return transfer_.done(); }
  void wait() override { transfer_.wait(); }
  // A dropped ticket is no error here: BlockFile finishes the transfer, and nothing else depends on the wait.
  void dropped() noexcept override {}
  OpEnd end() override {
    return {[t = transfer_] { return t.done(); }, [t = transfer_]() mutable { t.wait(); }};
  }
  std::optional<std::chrono::steady_clock::time_point> ended_at() override { return transfer_.ended_at(); }

 private:
  DiskTransfer transfer_;
};

}  // namespace

template <class Start>
Ticket RecordedFile::transfer(CommKind kind, std::size_t extent, const What& what,
                              std::optional<std::int64_t> of_step, const Start& start) {
  const auto issue = [&] {
    const auto now = DiskTransfer::Clock::now();
    const DiskTransfer started = start();
    if (watch_) watch_(kind, now, started);
    return Ticket(std::make_unique<DiskTicket>(started));
  };
  if (!record_) return issue();
  const Elements elements(file_.extent_bytes(extent).value() / 4);
  const Operation op{kind, DType::f32, elements, WorldSize{1}, 1, what.purpose, what.unit};
  return record_operation(record_, op, Bytes(0), {}, issue, of_step);
}

Ticket RecordedFile::read(std::size_t extent, std::span<std::byte> into, const What& what,
                          std::optional<std::int64_t> of_step) {
  return transfer(CommKind::disk_read, extent, what, of_step, [&] { return file_.read(extent, into); });
}

Ticket RecordedFile::write(std::size_t extent, std::span<const std::byte> from, const What& what,
                           std::optional<std::int64_t> of_step) {
  return transfer(CommKind::disk_write, extent, what, of_step, [&] { return file_.write(extent, from); });
}

}  // namespace sc
