// A rank's copies between its device and its host, issued, waited for and recorded like messages.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "common/comm/communicator.h"

namespace sc {

/// Asynchronous copies of one rank. Each direction has its own lane, in which copies run one after another in
/// issue order. The two lanes and the device work at the same time.
///   Order    a copy starts after the work already issued on the caller's stream, and returns at once; with
///            `after` it starts after the work that was issued when issued() was called.
///   Tensors  contiguous, of one dtype and count; with a GPU, the host tensor is pinned (Place::pinned).
///   Ticket   wait() makes the caller's stream wait, wait_on_host() blocks the caller. Before that nobody may
///            read the target or write the source.
///   what     names the data; shown in plan, record and messages.
///   of_step  the training step that a copy counts for, whenever it is issued; empty: the current step.
///   Errors   InputError (exit 64) on tensors that do not match or lie elsewhere; DeviceError from the wait.
class Copies {
 public:
  using OfStep = std::optional<std::int64_t>;
  using After = std::shared_ptr<void>;  // opaque; only the implementation that made it knows its type
  virtual ~Copies() = default;
  /// Marks all work issued on the caller's stream until now.
  [[nodiscard]] virtual After issued() = 0;
  Ticket to_host(const at::Tensor& device, at::Tensor& host, const What& what = {}, OfStep of_step = {}) {
    return checked(CommKind::to_host, device, host, what, of_step);
  }
  Ticket to_device(const at::Tensor& host, at::Tensor& device, const What& what = {}, OfStep of_step = {},
                   const After& after = {}) {
    return checked(CommKind::to_device, host, device, what, of_step, after);
  }
  /// Carries out to_host() or to_device() after their arguments were checked. `op` describes the copy;
  /// `after` is null or was returned by issued().
  virtual Ticket issue(const Operation& op, const at::Tensor& from, const at::Tensor& to, OfStep of_step,
                       const After& after) = 0;
  /// How many tickets of copies were destroyed without a wait.
  [[nodiscard]] virtual std::int64_t dropped_tickets() const = 0;

  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;

 protected:
  Copies() = default;

 private:
  Ticket checked(CommKind kind, const at::Tensor& from, const at::Tensor& to, const What& what,
                 OfStep of_step, const After& after = {});
};

/// Copies for a rank whose device is the CPU, with one thread per lane. `mbps` limits each direction to that
/// many 10^6 bytes per second; 0 means no limit.
std::unique_ptr<Copies> make_host_copies(double mbps = 0);
/// Copies for the current GPU, with one stream per lane. Throws in a build without GPU code.
std::unique_ptr<Copies> make_gpu_copies();

}  // namespace sc
