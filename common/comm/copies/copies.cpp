#include "common/comm/copies/copies.h"

#include <cstring>
#include <string>
#include <thread>

#include "common/base/check.h"
#include "common/comm/completion.h"
#include "common/comm/host_ticket.h"
#include "common/comm/lane.h"
#include "common/comm/op_check.h"

namespace sc {
namespace {

[[noreturn]] void refuse(CommKind kind, const std::string& what) {
  throw InputError(ExitCode::usage, std::string(name_of(kind)), what,
                   "contiguous tensors of one dtype and size, one on the device and one in host memory");
}

// Checks a copy's arguments and describes the copy; throws InputError if it cannot be done.
Operation check_copy(CommKind kind, const at::Tensor& from, const at::Tensor& to, const What& what) {
  if (!from.defined() || !to.defined()) refuse(kind, "a tensor is not defined");
  if (!from.is_contiguous() || !to.is_contiguous()) refuse(kind, "a tensor is not contiguous");
  if (from.scalar_type() != to.scalar_type())
    refuse(kind,
           "from " + std::string(name_of(dtype_of(from))) + " to " + std::string(name_of(dtype_of(to))));
  if (from.numel() != to.numel())
    refuse(kind, std::to_string(from.numel()) + " elements to " + std::to_string(to.numel()));
  const at::Tensor& host = kind == CommKind::to_host ? to : from;
  if (!host.is_cpu()) refuse(kind, "the host's tensor lies on a GPU");
  return {kind, dtype_of(from), Elements(from.numel()), WorldSize{1}, 1, what.purpose, what.unit};
}

class HostCopies final : public Copies {
 public:
  explicit HostCopies(double mbps) : mbps_(mbps) {}
  [[nodiscard]] std::int64_t dropped_tickets() const override { return drops_->count(); }

  /// The mark of the work issued so far: on the CPU that work has ended already, so there is nothing to mark.
  [[nodiscard]] After issued() override { return {}; }
  Ticket issue(const Operation& op, const at::Tensor& from, const at::Tensor& to, OfStep /*of_step*/,
               const After& /*after*/) override {
    std::unique_ptr<Lane>& lane = op.kind == CommKind::to_host ? down_ : up_;
    if (!lane) lane = std::make_unique<Lane>();
    auto end = std::make_shared<Completion>();
    const std::chrono::duration<double> takes(mbps_ > 0 ? static_cast<double>(from.nbytes()) / (1e6 * mbps_)
                                                        : 0);
    lane->post([from, to, end, takes] {
      const auto began = Completion::Clock::now();
      if (from.numel() > 0) std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
      std::this_thread::sleep_until(began + std::chrono::duration_cast<Completion::Clock::duration>(takes));
      end->finish();
    });
    return Ticket(std::make_unique<HostTicket>(std::move(end), drops_, from, to));
  }

 private:
  const double mbps_;
  std::shared_ptr<DropCounter> drops_ = std::make_shared<DropCounter>();
  std::unique_ptr<Lane> down_, up_;  // started by the first copy
};

}  // namespace

Ticket Copies::checked(CommKind kind, const at::Tensor& from, const at::Tensor& to, const What& what,
                       OfStep of_step, const After& after) {
  return issue(check_copy(kind, from, to, what), from, to, of_step, after);
}

std::unique_ptr<Copies> make_host_copies(double mbps) { return std::make_unique<HostCopies>(mbps); }

}  // namespace sc
