// One group of ranks. Every strategy is written against this interface and nothing else.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>

#include "common/base/check.h"
#include "common/base/types.h"
#include "common/watch/comm_op.h"
#include "common/watch/gpu_moment.h"

namespace sc {

/// The group was aborted while an operation was pending, or before it was issued: somebody else's error is
/// the cause.
class AbortedError : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

/// The end of an operation for those who do not hold its ticket: on the host, from any thread, also after the
/// ticket's wait.
struct OpEnd {
  std::function<bool()> passed = [] { return true; };  // never blocks
  std::function<void()> wait = [] {};                  // blocks the host; throws the operation's error
};

/// What an operation in flight is made of; one subclass a backend. Keeps the tensors' storage alive until
/// wait() returns.
class TicketState {
 public:
  virtual ~TicketState() = default;
  /// True when the operation has ended, well or badly. Never blocks; any thread may ask (the watchdog does).
  virtual bool ready() = 0;
  /// CPU: blocks until the operation has ended. GPU: makes the caller's stream wait. Rethrows the operation's
  /// error.
  virtual void wait() = 0;
  /// Blocks the host until the operation has ended, whatever the device. Not for an operation that was
  /// captured into a graph.
  virtual void wait_on_host() { wait(); }
  /// The ticket went away without a wait: count it, so that tests (and the end of a run) can fail. Never
  /// throws.
  virtual void dropped() noexcept = 0;
  /// GPU: says whether the operation has ended after wait() has returned to the host; it outlives this state
  /// and is asked from any thread. Null: wait() returns when the operation has ended.
  [[nodiscard]] virtual std::function<bool()> ended_later() { return nullptr; }
  /// GPU, after wait(): the wait, and perhaps the operation, as the GPU measures them. Without wait_ended:
  /// the wait is the time that the host spent in it.
  [[nodiscard]] virtual GpuTimes gpu_times() { return {}; }
  /// Copies have one; an operation that was captured into a graph, and messages between GPUs, have none.
  [[nodiscard]] virtual OpEnd end() {
    throw std::logic_error("this operation's end cannot be waited for apart");
  }
  /// When the operation ended, where the backend knows it.
  [[nodiscard]] virtual std::optional<std::chrono::steady_clock::time_point> ended_at() {
    return std::nullopt;
  }
};

/// The receipt of one operation. Move-only. Between issue and wait() nobody writes the operation's tensors,
/// or reads those that it writes.
class Ticket {
 public:
  Ticket() = default;  // an operation that has already been waited for
  explicit Ticket(std::unique_ptr<TicketState> state) : state_(std::move(state)) {}
  Ticket(Ticket&& other) noexcept = default;
  Ticket& operator=(Ticket&& other) noexcept {
    if (this != &other) {
      if (state_) state_->dropped();
      state_ = std::move(other.state_);
    }
    return *this;
  }
  ~Ticket() {
    if (state_) state_->dropped();
  }
  [[nodiscard]] bool ready() { return !state_ || state_->ready(); }
  /// Idempotent. After it the tensors may be used again.
  void wait() {
    if (auto state = std::move(state_)) state->wait();
  }
  /// Idempotent, and instead of wait(): the host itself waits, from any thread.
  void wait_on_host() {
    if (auto state = std::move(state_)) state->wait_on_host();
  }
  /// Before wait().
  [[nodiscard]] OpEnd end() { return state_ ? state_->end() : OpEnd{}; }
  /// For decorators: the state itself, which must be waited for or told that it was dropped. Null if there is
  /// none.
  [[nodiscard]] std::unique_ptr<TicketState> release() { return std::move(state_); }

 private:
  std::unique_ptr<TicketState> state_;
};

/// Which operations a window is for.
enum class WindowUse { gathers, sums };

/// Asynchronous operations over one group of ranks. All ranks issue the same collectives in the same order.
///   Order    an operation starts after the work already issued on the caller's stream and returns at once.
///   Tensors  contiguous, same dtype and element count on every rank; any count, also 0 or fewer than the
///            ranks.
///   Sums     in rank order, ((t0 + t1) + t2) + ...; 16-bit types accumulate in fp32 and are rounded once
///            (Local, Mpi, Staged).
///   Errors   InputError on a shape, dtype or rank that cannot be; DeviceError if the transport reports one
///            (rethrown by wait()).
class Communicator {
 public:
  virtual ~Communicator() = default;
  [[nodiscard]] virtual Rank rank() const = 0;
  [[nodiscard]] virtual WorldSize size() const = 0;
  /// Blocks until every rank of the group is here.
  virtual void barrier() = 0;
  /// Makes pending and later operations of this group fail on every rank of this process; peers learn by
  /// their watchdog or launcher.
  virtual void abort() noexcept = 0;
  /// A group of the ranks that pass the same `color` (>= 0), ordered by their rank here. Collective.
  /// color < 0: not a member, returns null.
  virtual std::unique_ptr<Communicator> split(int color) = 0;

  /// `bytes` of this rank's memory that the others reach directly, so that the GPUs' copy engines carry what
  /// they can: for `gathers` an all_gather from one such block into another, or in place; for `sums` an
  /// all_gather into it from anywhere, and what is summed out of it. `full` then lies at the same offset of
  /// its block on every rank; nobody checks that, and what does not overwrites other data. Not initialised.
  /// Null: this backend has none, any tensor will do.
  ///   Collective, with equal `bytes`; ranks also let go of their blocks in the same order.
  virtual std::shared_ptr<void> window(Bytes bytes, WindowUse use = WindowUse::gathers) {
    return (void)bytes, (void)use, nullptr;
  }

  /// Sums `t` over all ranks, in place.  Cost: each rank sends 2 (N-1)/N of it.
  ///   what  it carries, here and below: for the plan, the record and messages.
  Ticket all_reduce(at::Tensor& t, const What& what = {}) {
    return checked(CommKind::all_reduce, t, t, {}, what);
  }
  /// Sums `full` [N * n] over all ranks and leaves slice rank() in `shard` [n]. `shard` may be exactly that
  /// slice of `full`; no other overlap. `full` is clobbered only where `shard` aliases it.  Cost: (N-1)/N of
  /// full.
  Ticket reduce_scatter(const at::Tensor& full, at::Tensor& shard, const What& what = {}) {
    return checked(CommKind::reduce_scatter, full, shard, {}, what);
  }
  /// Writes every rank's `shard` [n] to slice r of `full` [N * n]. In place as above.  Cost: (N-1)/N of full.
  Ticket all_gather(const at::Tensor& shard, at::Tensor& full, const What& what = {}) {
    return checked(CommKind::all_gather, shard, full, {}, what);
  }
  Ticket broadcast(at::Tensor& t, Rank root, const What& what = {}) {
    return checked(CommKind::broadcast, t, t, root, what);
  }
  /// Matched in issue order within a directed pair. A pending receive never blocks another operation.
  Ticket send(const at::Tensor& t, Rank to, const What& what = {}) {
    return checked(CommKind::send, t, t, to, what);
  }
  Ticket recv(at::Tensor& t, Rank from, const What& what = {}) {
    return checked(CommKind::recv, t, t, from, what);
  }

  /// What all of these come to when their arguments have been checked: backends carry it out, decorators
  /// hand it on.
  ///   from, to  what is read and what is written; of an operation with one tensor both are that one
  ///   peer      the root of a broadcast, the other end of a message
  virtual Ticket issue(const Operation& op, const at::Tensor& from, const at::Tensor& to,
                       std::optional<Rank> peer) = 0;

  /// Tickets of this group (and its splits) that were dropped without a wait.
  [[nodiscard]] virtual std::int64_t dropped_tickets() const = 0;

  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

 protected:
  Communicator() = default;

 private:
  Ticket checked(CommKind kind, const at::Tensor& from, const at::Tensor& to, std::optional<Rank> peer,
                 const What& what);
};

}  // namespace sc
