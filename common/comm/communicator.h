// One group of ranks. Strategies communicate through this interface and nothing else.
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

/// The group was aborted before or during the operation. The cause is an error of something else.
class AbortedError : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

/// The end of an operation, for code that does not hold its ticket. Usable from any thread, also after the
/// ticket's wait.
struct OpEnd {
  std::function<bool()> passed = [] { return true; };  // never blocks
  std::function<void()> wait = [] {};                  // blocks the host; throws the operation's error
};

/// The state of an operation in flight; one subclass per backend. Keeps the tensors' storage alive until
/// wait() returns.
class TicketState {
 public:
  virtual ~TicketState() = default;
  /// True when the operation has ended, with or without an error. Never blocks. Any thread may ask; the
  /// watchdog does.
  virtual bool ready() = 0;
  /// Waits for the operation: on the CPU the caller blocks, on a GPU the caller's stream waits. Rethrows the
  /// operation's error.
  virtual void wait() = 0;
  /// Blocks the host until the operation has ended, on any device. Not for an operation captured into a
  /// graph.
  virtual void wait_on_host() { wait(); }
  /// The ticket was destroyed without a wait. Counts that, so that tests and the end of a run fail. Never
  /// throws.
  virtual void dropped() noexcept = 0;
  /// GPU: a function that says whether the operation has ended, since wait() returns to the host earlier. It
  /// outlives this state and may be called from any thread. Null: wait() returns only when the operation has
  /// ended.
  [[nodiscard]] virtual std::function<bool()> ended_later() { return nullptr; }
  /// GPU, after wait(): the times of the wait, and perhaps of the operation, as the GPU measures them.
  /// Without `wait_ended`, the wait is the time that the host spent in wait().
  [[nodiscard]] virtual GpuTimes gpu_times() { return {}; }
  /// The operation's end for others. Copies have one; operations captured into a graph and messages between
  /// GPUs have none.
  [[nodiscard]] virtual OpEnd end() {
    throw std::logic_error("this operation's end cannot be waited for apart");
  }
  /// The time at which the operation ended, if the backend knows it.
  [[nodiscard]] virtual std::optional<std::chrono::steady_clock::time_point> ended_at() {
    return std::nullopt;
  }
};

/// The receipt of one operation. Move-only. Between issue and wait() nobody may write the operation's
/// tensors, or read those that it writes.
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
  /// Waits for the operation; afterwards the tensors may be used again. Idempotent.
  void wait() {
    if (auto state = std::move(state_)) state->wait();
  }
  /// Blocks the host itself, from any thread. Idempotent; used instead of wait().
  void wait_on_host() {
    if (auto state = std::move(state_)) state->wait_on_host();
  }
  /// The operation's end for others; must be asked for before wait().
  [[nodiscard]] OpEnd end() { return state_ ? state_->end() : OpEnd{}; }
  /// Gives a decorator the state, which it must then wait for or report as dropped. Null if there is none.
  [[nodiscard]] std::unique_ptr<TicketState> release() { return std::move(state_); }

 private:
  std::unique_ptr<TicketState> state_;
};

/// The operations that a window is used for.
enum class WindowUse { gathers, sums };

/// Asynchronous operations over one group of ranks. All ranks issue the same collectives in the same order.
///   Order    an operation starts after the work already issued on the caller's stream, and returns at once.
///   Tensors  contiguous, with the same dtype and element count on every rank; any count, also 0 or fewer
///            than the ranks.
///   Sums     in rank order, ((t0 + t1) + t2) + ...; 16-bit types accumulate in fp32 and are rounded once
///            (Local, Mpi, Staged).
///   Errors   InputError on an impossible shape, dtype or rank; DeviceError if the transport reports an error
///            (rethrown by wait()).
class Communicator {
 public:
  virtual ~Communicator() = default;
  [[nodiscard]] virtual Rank rank() const = 0;
  [[nodiscard]] virtual WorldSize size() const = 0;
  /// Blocks until every rank of the group has called it.
  virtual void barrier() = 0;
  /// Makes pending and later operations of this group fail on all ranks in this process. Ranks in other
  /// processes find out through their watchdog or launcher.
  virtual void abort() noexcept = 0;
  /// Makes a group of the ranks that pass the same `color` (>= 0), ordered by their rank here. Collective. A
  /// rank with color < 0 is not a member and gets null.
  virtual std::unique_ptr<Communicator> split(int color) = 0;

  /// `bytes` of this rank's memory that other ranks reach directly, so that the GPUs' copy engines can do the
  /// transfers: with `gathers`, an all_gather from one such block into another, or in place; with `sums`, an
  /// all_gather into the block from anywhere, and sums read from it. `full` must lie at the same offset of
  /// its block on every rank; this is not checked, and a wrong offset overwrites other data. The memory is
  /// not initialised. Null: the backend has no windows, and any tensor will do.
  ///   Collective, with equal `bytes`; ranks must also release their blocks in the same order.
  virtual std::shared_ptr<void> window(Bytes bytes, WindowUse use = WindowUse::gathers) {
    return (void)bytes, (void)use, nullptr;
  }

  /// Sums `t` over all ranks, in place.  Cost: each rank sends 2 (N-1)/N of it.
  ///   what  is transferred, here and below; shown in plan, record and messages.
  Ticket all_reduce(at::Tensor& t, const What& what = {}) {
    return checked(CommKind::all_reduce, t, t, {}, what);
  }
  /// Sums `full` [N * n] over all ranks and leaves slice rank() in `shard` [n]. `shard` may be exactly that
  /// slice of `full`; no other overlap is allowed. `full` is overwritten only where `shard` aliases it.
  ///   Cost  each rank sends (N-1)/N of full.
  Ticket reduce_scatter(const at::Tensor& full, at::Tensor& shard, const What& what = {}) {
    return checked(CommKind::reduce_scatter, full, shard, {}, what);
  }
  /// Writes the `shard` [n] of rank r to slice r of `full` [N * n], for every r. `shard` may be exactly this
  /// rank's slice.
  ///   Cost  each rank sends (N-1)/N of full.
  Ticket all_gather(const at::Tensor& shard, at::Tensor& full, const What& what = {}) {
    return checked(CommKind::all_gather, shard, full, {}, what);
  }
  Ticket broadcast(at::Tensor& t, Rank root, const What& what = {}) {
    return checked(CommKind::broadcast, t, t, root, what);
  }
  /// Sends and receives match in issue order within a directed pair. A pending receive never blocks other
  /// operations.
  Ticket send(const at::Tensor& t, Rank to, const What& what = {}) {
    return checked(CommKind::send, t, t, to, what);
  }
  Ticket recv(at::Tensor& t, Rank from, const What& what = {}) {
    return checked(CommKind::recv, t, t, from, what);
  }

  // [anchor: every-operation-issued]
  /// Carries out any of the operations above after their arguments were checked. Backends implement it,
  /// decorators forward it.
  ///   from, to  the tensor that is read and the one that is written; the same for an operation in place
  ///   peer      the root of a broadcast, or the other end of a message
  virtual Ticket issue(const Operation& op, const at::Tensor& from, const at::Tensor& to,
                       std::optional<Rank> peer) = 0;

  /// Tickets of this group and its splits that were destroyed without a wait.
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
