// The only thread of a process that calls MPI. Internal to comm: other code uses mpi_communicator.h.
#pragma once

#include <ATen/core/Tensor.h>
#include <mpi.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/comm/completion.h"
#include "common/comm/mpi/mpi_exchange.h"

namespace sc {

struct MpiOperation;

/// Whether a group was aborted, itself or a group that it was split from. Never cleared.
struct AbortFlag {
  explicit AbortFlag(std::shared_ptr<AbortFlag> of_parent = nullptr) : parent(std::move(of_parent)) {}
  [[nodiscard]] bool is_set() const { return set || (parent && parent->is_set()); }
  std::atomic<bool> set = false;
  const std::shared_ptr<AbortFlag> parent;
};

/// One group of ranks. Collectives and messages use separate MPI communicators: they never match.
struct MpiGroup {
  Rank rank{0};
  WorldSize world{1};
  MPI_Comm collectives = MPI_COMM_NULL;
  MPI_Comm messages = MPI_COMM_NULL;
  at::Tensor scratch;                                                  // u8; undefined for a world of one
  std::shared_ptr<AbortFlag> aborted = std::make_shared<AbortFlag>();  // no more operations are accepted
  // Only the MPI thread uses `queue` and `broken`.
  std::deque<MpiOperation*> queue;  // collectives in issue order; the first one is in progress
  std::optional<OpFailure> broken;  // a collective failed, so the ranks are out of step
};

/// One operation: exchanges that run one after another, each cut into pieces that pass through slots.
struct MpiOperation {
  std::string text;  // e.g. "rank 1: all_reduce of 10 f32"
  std::shared_ptr<MpiGroup> group;
  bool collective = true;
  std::vector<Exchange> exchanges;
  at::Tensor first, second;  // keep the memory alive
  std::shared_ptr<Completion> end = std::make_shared<Completion>();
  // Only the MPI thread uses `slots` and what follows.
  struct Slot {
    std::int64_t piece = 0;
    int stage = 0;
    int pending = 0;  // requests in flight
  };
  std::size_t exchange = 0;  // index of the exchange in progress
  std::vector<Slot> slots;
  std::int64_t ended_pieces = 0;
  std::int64_t pending = 0;  // requests in flight, over all slots
  bool failed = false;       // reported to its waiters; kept until MPI no longer uses its memory
};

/// The MPI requests in flight, each with its operation and slot.
class MpiRequests {
 public:
  struct Owner {
    MpiOperation* operation;
    std::size_t slot;
    std::int64_t expected;  // bytes of a receive; -1 for a send
  };
  struct Ended {
    Owner owner;
    std::optional<std::string> error;
  };
  void add(MPI_Request request, Owner owner);
  /// Removes and returns the requests that have ended since the last call. Never blocks.
  std::vector<Ended> test();
  [[nodiscard]] bool empty() const { return requests_.empty(); }
  /// Cancels receives of messages that nobody will send any more.
  void cancel_receives_of_messages();

 private:
  std::vector<MPI_Request> requests_;
  std::vector<Owner> owners_;
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
};

/// Starts MPI in a thread of its own, runs operations, ends MPI. While no request ends the thread naps, at
/// first 20 us, later up to 200 us; with nothing in flight it sleeps until a new operation wakes it.
class MpiEngine {
 public:
  /// Returns when MPI has started.
  ///   Errors  DeviceError if MPI does not start.
  MpiEngine();
  /// Lets operations in flight end (for up to 5 s; receives without a sender are cancelled), then finalizes
  /// MPI. After leave_badly() or if operations did not end, MPI is not finalized: mpirun then treats this
  /// process as failed, and no rank waits for it.
  void stop();
  ~MpiEngine();

  void post(const std::shared_ptr<MpiOperation>& operation);
  /// Runs `work` on the MPI thread and waits for it; rethrows its exception.For MPI calls that block.
  void call(const std::function<void()>& work);
  /// Makes every operation of `group`, and of the groups split from it, fail.
  void abort_group(MpiGroup& group) noexcept;
  void leave_badly() noexcept { leave_badly_ = true; }
  /// Calls MPI_Abort on the MPI thread, or _exit if that thread is stuck.
  [[noreturn]] void abort_job(int exit_code) noexcept;

 private:
  /// Hands a command to the MPI thread. False if MPI has ended already.
  [[nodiscard]] bool enqueue(std::function<void()> command);
  void run(Completion& started);
  void work_until_stopped();
  bool take_commands();
  bool take_ended_requests();
  void idle();
  void begin(std::shared_ptr<MpiOperation> operation);
  void proceed(MpiOperation& operation);
  bool proceed_pieces(MpiOperation& operation);
  void start_exchange(MpiOperation& operation);
  void finish(MpiOperation& operation);
  static void tell(MpiOperation& operation, const OpFailure& failure);
  static void fail(MpiOperation& operation, const OpFailure& failure);
  void fail_aborted();
  void drain();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> commands_;
  bool stop_ = false;
  std::atomic<bool> leave_badly_ = false;
  std::atomic<int> abort_code_ = 0;

  // Only the MPI thread uses `requests_` and what follows.
  MpiRequests requests_;
  std::list<std::shared_ptr<MpiOperation>> operations_;
  std::chrono::microseconds nap_{0};

  std::thread thread_;
};

}  // namespace sc
