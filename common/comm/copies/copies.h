// A rank's own copies between its device and its host: issued, waited for and recorded as messages are.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "common/comm/communicator.h"

namespace sc {

/// Asynchronous copies of one rank. Each direction has a lane of its own, in which copies run one after the
/// other in issue order; the lanes run beside each other and beside the device.
///   Order    a copy starts after the work already issued on the caller's stream and returns at once; with
///            `after`, it starts after what had been issued there when issued() made that.
///   Tensors  contiguous, of one dtype and element count; the host's in pinned memory beside a GPU
///            (Place::pinned).
///   Ticket   wait() makes the caller's stream wait, wait_on_host() the caller itself. Nobody reads what is
///            written, or writes what is read, before.
///   what     it carries: for the plan, the record and messages.
///   of_step  the training step that a copy counts for, whenever it is issued; empty: the present one.
///   Errors   InputError (exit 64) on tensors that do not match or lie elsewhere; DeviceError from the wait.
class Copies {
 public:
  using OfStep = std::optional<std::int64_t>;
  using After = std::shared_ptr<void>;  // what it is only who made it knows
  virtual ~Copies() = default;
  /// All that has been issued on the caller's stream until now.
  [[nodiscard]] virtual After issued() = 0;
  Ticket to_host(const at::Tensor& device, at::Tensor& host, const What& what = {}, OfStep of_step = {}) {
    return checked(CommKind::to_host, device, host, what, of_step);
  }
  Ticket to_device(const at::Tensor& host, at::Tensor& device, const What& what = {}, OfStep of_step = {},
                   const After& after = {}) {
    return checked(CommKind::to_device, host, device, what, of_step, after);
  }
  /// What both come to, once their arguments have been checked. op: the copy's kind, and what is copied.
  /// after: null, or of issued().
  virtual Ticket issue(const Operation& op, const at::Tensor& from, const at::Tensor& to, OfStep of_step,
                       const After& after) = 0;
  /// Tickets that were dropped without a wait.
  [[nodiscard]] virtual std::int64_t dropped_tickets() const = 0;

  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;

 protected:
  Copies() = default;

 private:
  Ticket checked(CommKind kind, const at::Tensor& from, const at::Tensor& to, const What& what,
                 OfStep of_step, const After& after = {});
};

/// Of a rank whose device is the CPU: a thread a lane copies. mbps: no faster than so many 10^6 bytes a
/// second each way; 0: as fast as it can.
std::unique_ptr<Copies> make_host_copies(double mbps = 0);
/// Of the current GPU: a stream a lane. A build without GPU code refuses.
std::unique_ptr<Copies> make_gpu_copies();

}  // namespace sc
