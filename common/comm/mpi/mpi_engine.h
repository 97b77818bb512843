// The one thread of a process that calls MPI. Internal to comm: everybody else uses mpi_communicator.h.
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

/// Set once; a group that was split from an aborted one is aborted, too.
struct AbortFlag {
  explicit AbortFlag(std::shared_ptr<AbortFlag> of_parent = nullptr) : parent(std::move(of_parent)) {}
  [[nodiscard]] bool is_set() const { return set || (parent && parent->is_set()); }
  std::atomic<bool> set = false;
  const std::shared_ptr<AbortFlag> parent;
};

/// One group of ranks as the MPI thread sees it. Collectives and messages have an MPI communicator each and
/// never meet.
struct MpiGroup {
  Rank rank{0};
  WorldSize world{1};
  MPI_Comm collectives = MPI_COMM_NULL;
  MPI_Comm messages = MPI_COMM_NULL;
  at::Tensor scratch;                                                  // u8; undefined for a world of one
  std::shared_ptr<AbortFlag> aborted = std::make_shared<AbortFlag>();  // no operation is accepted any more
  // The MPI thread's own:
  std::deque<MpiOperation*> queue;  // collectives in issue order; the front one is in progress
  std::optional<OpFailure> broken;  // a collective failed, so the ranks are not in step any more
};

/// One operation: its exchanges run one after the other, each with its pieces in slots.
struct MpiOperation {
  std::string text;  // "rank 1: all_reduce of 10 f32"
  std::shared_ptr<MpiGroup> group;
  bool collective = true;
  std::vector<Exchange> exchanges;
  at::Tensor first, second;  // keep the memory alive
  std::shared_ptr<Completion> end = std::make_shared<Completion>();
  // The MPI thread's own:
  struct Slot {
    std::int64_t piece = 0;
    int stage = 0;
    int pending = 0;  // requests
  };
  std::size_t exchange = 0;  // the one in progress
  std::vector<Slot> slots;
  std::int64_t ended_pieces = 0;
  std::int64_t pending = 0;  // requests of all slots
  bool failed = false;       // told its waiters; kept until MPI has let go of its memory
};

/// Requests in flight, and whose they are.
class MpiRequests {
 public:
  struct Owner {
    MpiOperation* operation;
    std::size_t slot;
    std::int64_t expected;  // bytes of a receive; -1: not a receive
  };
  struct Ended {
    Owner owner;
    std::optional<std::string> error;
  };
  void add(MPI_Request request, Owner owner);
  /// Those that have ended since the last call, without blocking.
  std::vector<Ended> test();
  [[nodiscard]] bool empty() const { return requests_.empty(); }
  /// Cancels receives that nobody will answer.
  void cancel_receives_of_messages();

 private:
  std::vector<MPI_Request> requests_;
  std::vector<Owner> owners_;
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
};

/// Starts MPI in its thread, runs operations, ends MPI. It sleeps when nothing moves: 20 us at first, up to
/// 200 us, and without limit while nothing is in flight; a new operation wakes it.
class MpiEngine {
 public:
  /// Errors: DeviceError if MPI does not start.
  MpiEngine();
  /// Lets operations in flight end (receives without a sender are cancelled; 5 s at most), then finalizes.
  /// After leave_badly() or a failed drain MPI is not finalized, and mpirun treats this process as failed:
  /// nobody waits for it.
  void stop();
  ~MpiEngine();

  void post(const std::shared_ptr<MpiOperation>& operation);
  /// Runs `work` on the MPI thread and waits for it; rethrows its exception. For the few calls of MPI that
  /// block.
  void call(const std::function<void()>& work);
  /// Fails every operation of `group` and of the groups split from it.
  void abort_group(MpiGroup& group) noexcept;
  void leave_badly() noexcept { leave_badly_ = true; }
  /// MPI_Abort from the MPI thread; _exit if that thread is stuck.
  [[noreturn]] void abort_job(int exit_code) noexcept;

 private:
  /// Hands a command to the MPI thread; false: MPI has been ended.
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

  // The MPI thread's own:
  MpiRequests requests_;
  std::list<std::shared_ptr<MpiOperation>> operations_;
  std::chrono::microseconds nap_{0};

  std::thread thread_;
};

}  // namespace sc
