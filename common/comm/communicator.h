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

/// Thrown by operations of an aborted group. The error that caused the abort is reported elsewhere.
class AbortedError : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

/// How to ask for an operation's end without holding its ticket. From any thread, also after Ticket::wait().
struct OpEnd {
  std::function<bool()> passed = [] { return true; };  // never blocks
  std::function<void()> wait = [] {};                  // blocks the host; throws the operation's error
};

/// An operation in flight, one class per backend. Keeps the tensors' storage alive until wait() returns.
class TicketState {
 public:
  virtual ~TicketState() = default;
  /// Whether the operation has ended, with or without an error. Never blocks; the watchdog's thread asks too.
  virtual bool ready() = 0;
  /// Makes the caller wait on the CPU, its stream on a GPU. Rethrows the operation's error.
  virtual void wait() = 0;
  /// Blocks the host until the operation has ended, on any device. Not for an operation captured into a CUDA
  /// graph.
  virtual void wait_on_host() { wait(); }
  /// Called when a ticket is destroyed without a wait: tests and the end of a run then fail. Never throws.
  virtual void dropped() noexcept = 0;
  /// On a GPU, where wait() returns before the operation has ended, a function that says whether it has
  /// ended; it outlives this state; any thread may call it. Null if wait() returns only after the end.
  [[nodiscard]] virtual std::function<bool()> ended_later() { return nullptr; }
  /// The times of the wait, and with a trace of the operation, as the GPU measured them. Valid after wait().
  /// Without `wait_ended`, the wait is the time that the host spent in wait().
  [[nodiscard]] virtual GpuTimes gpu_times() { return {}; }
  /// The operation's end, for code without its ticket. Copies have one; operations captured into a graph and
  /// messages between GPUs throw.
  [[nodiscard]] virtual OpEnd end() {
    throw std::logic_error("this operation's end cannot be waited for apart");
  }
  /// When the operation ended, if the backend measures it.
  [[nodiscard]] virtual std::optional<std::chrono::steady_clock::time_point> ended_at() {
    return std::nullopt;
  }
};

/// The receipt of one operation; move-only. Until wait() returns, nobody may read or write the operation's
/// tensors.
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
  /// Blocks the host until the operation has ended, instead of wait(). Any thread may call it. Idempotent.
  void wait_on_host() {
    if (auto state = std::move(state_)) state->wait_on_host();
  }
  /// The operation's end, for code without this ticket (OpEnd). Must be called before wait().
  [[nodiscard]] OpEnd end() { return state_ ? state_->end() : OpEnd{}; }
  /// Hands the state over to a decorator, which must wait for it or report it as dropped. Null after a wait.
  [[nodiscard]] std::unique_ptr<TicketState> release() { return std::move(state_); }

 private:
  std::unique_ptr<TicketState> state_;
};

/// Whether a window serves all_gathers between ranks or sums over them.
enum class WindowUse { gathers, sums };

/// Asynchronous operations over one group of ranks. All ranks issue the same collectives in the same order.
///   Order    an operation starts after the work already issued on the caller's stream, and returns at once.
///   Tensors  contiguous, with the same dtype and element count on every rank; any count, also 0 or fewer
///            than the ranks.
///   Sums     in rank order, ((t0 + t1) + t2) + ...; 16-bit types accumulate in fp32 and are rounded once
///            (Local, Mpi, Staged).
///   Errors   InputError on a wrong shape, dtype or rank; DeviceError by wait() if the transport fails.
class Communicator {
 public:
  virtual ~Communicator() = default;
  [[nodiscard]] virtual Rank rank() const = 0;
  [[nodiscard]] virtual WorldSize size() const = 0;
  /// Blocks until every rank of the group has called it.
  virtual void barrier() = 0;
  /// Makes pending and later operations of this group fail in this process. Ranks in other processes learn of
  /// it from their watchdog or launcher.
  virtual void abort() noexcept = 0;
  /// Makes one group of all ranks that pass the same `color` (>= 0), ordered by their rank here. Collective.
  /// A rank with color < 0 joins none and gets null.
  virtual std::unique_ptr<Communicator> split(int color) = 0;

  /// Allocates `bytes`, uninitialised, that other ranks reach directly, so that the GPUs' copy engines can do
  /// transfers: with `gathers`, an all_gather between two such blocks or in place; with `sums`, an all_gather
  /// into the block from anywhere, and sums read from it. `full` must lie at the same offset of its block on
  /// every rank; this is not checked, and a wrong offset overwrites other data. Null if the backend has no
  /// windows and any tensor will do.
  ///   Collective, with equal `bytes`; ranks must also release their blocks in the same order.
  virtual std::shared_ptr<void> window(Bytes bytes, WindowUse use = WindowUse::gathers) {
    return (void)bytes, (void)use, nullptr;
  }

  /// Sums `t` over all ranks, in place. Each rank sends 2 (N-1)/N of `t`.
  ///   what  names the data, here and in the operations below; shown in plan, record and messages.
  Ticket all_reduce(at::Tensor& t, const What& what = {}) {
    return checked(CommKind::all_reduce, t, t, {}, what);
  }
  /// Sums `full` [N * n] over all ranks and leaves slice rank() in `shard` [n]. `shard` may be exactly that
  /// slice of `full`; no other overlap is allowed. `full` is overwritten only where `shard` aliases it.
  ///   Cost  each rank sends (N-1)/N of full.
  Ticket reduce_scatter(const at::Tensor& full, at::Tensor& shard, const What& what = {}) {
    return checked(CommKind::reduce_scatter, full, shard, {}, what);
  }
  /// Writes rank r's `shard` [n] to slice r of `full` [N * n], for all r. `shard` may be this rank's slice.
  ///   Cost  each rank sends (N-1)/N of full.
  Ticket all_gather(const at::Tensor& shard, at::Tensor& full, const What& what = {}) {
    return checked(CommKind::all_gather, shard, full, {}, what);
  }
  Ticket broadcast(at::Tensor& t, Rank root, const What& what = {}) {
    return checked(CommKind::broadcast, t, t, root, what);
  }
  /// Sends `t` to one rank. Sends and receives match in issue order within a directed pair, and a pending
  /// receive never blocks other operations.
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

  /// How many tickets of this group and its splits were destroyed without a wait.
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
