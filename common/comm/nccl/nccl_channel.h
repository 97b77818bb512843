// One NCCL communicator with its stream, and the group that it belongs to. Internal to comm.
#pragma once

#include <nccl.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/types.h"
#include "common/comm/nccl/nccl_events.h"

namespace sc {

/// What is kept of an operation once it was enqueued.
struct NcclEnd {
  EventLease event;           // recorded after the operation
  GpuMomentPtr began, ended;  // null unless the group traces
};

/// The interface of whatever a group aborts together with itself.
class Abortable {
 public:
  virtual ~Abortable() = default;
  /// Ends whatever waits on the GPU for another rank. Callable from any thread.
  virtual void abort() noexcept = 0;
};

/// What the channels of one group of ranks share. A group split from an aborted group counts as aborted too.
struct NcclGroup {
  int device = 0;
  Rank rank{0};
  WorldSize world{1};
  std::chrono::milliseconds limit{0};
  std::shared_ptr<const std::atomic<bool>> trace = {};  // true: mark where operations begin and end
  [[nodiscard]] bool traces() const { return trace && *trace; }
  std::shared_ptr<EventPool> events = std::make_shared<EventPool>();
  std::shared_ptr<EventPool> moments = std::make_shared<EventPool>(EventPool::Kind::timed);
  std::atomic<bool> aborted = false;
  /// Whether any group of this family (the groups split from one another) ever had a window.
  std::shared_ptr<std::atomic<bool>> windows = std::make_shared<std::atomic<bool>>(false);

  /// Ends the GPU work of this group's and its splits' channels. Callable from any thread. Does nothing if
  /// there ever was a window: a copy engine that waits for a missing rank waits for ever, and so does NCCL's
  /// abort of any communicator on that GPU.
  void abort() noexcept;
  void add(const std::weak_ptr<Abortable>& channel);
  void add(const std::shared_ptr<NcclGroup>& part);

  /// begin() enqueues on `stream` what precedes an operation (the wait for `start`), end() what follows it.
  GpuMomentPtr begin(cudaStream_t stream, const EventLease& start);
  NcclEnd end(cudaStream_t stream, GpuMomentPtr began);

 private:
  /// Marks this group and its splits as aborted, and collects their channels for abort().
  void begin_abort(std::vector<std::shared_ptr<Abortable>>& channels);

  std::mutex mutex_;
  std::vector<std::weak_ptr<Abortable>> channels_;
  std::vector<std::weak_ptr<NcclGroup>> parts_;
};

/// A non-blocking ncclComm_t: each NCCL call returns at once and is polled until NCCL has accepted it. One
/// thread issues; any thread may abort at the same time.
///   Errors  DeviceError with `name` if NCCL reports an error; AbortedError after abort().
class NcclChannel : public Abortable {
 public:
  /// A function that enqueues one NCCL operation on the stream.
  using Call = std::function<ncclResult_t(ncclComm_t, cudaStream_t)>;

  /// `name` is for messages, e.g. "rank 1: send to rank 2".
  NcclChannel(std::shared_ptr<NcclGroup> group, std::string name);
  /// Waits up to 5 s for the operations on its stream, then frees NCCL's memory. Operations that have not
  /// ended are aborted, or left alone if there were windows.
  ~NcclChannel() override;

  /// Starts to join the other ranks that use this id; accepted() becomes true when it has joined.
  void begin_join(const ncclUniqueId& id, int rank, int ranks);
  /// Starts an operation that follows `start`. accepted() becomes true when NCCL has taken it; then end()
  /// marks its end.
  void begin(const EventLease& start, const Call& call);
  /// Whether NCCL has accepted the join or operation that was begun last.
  [[nodiscard]] bool accepted();
  [[nodiscard]] NcclEnd end() { return group_->end(stream(), std::move(began_)); }

  /// Joins as begin_join() does and polls until NCCL has accepted, for the group's time limit at most.
  void join(const ncclUniqueId& id, int rank, int ranks);
  /// Runs begin(), polls until NCCL has accepted, and runs end(). `behind` enqueues work that belongs to the
  /// operation and follows it.
  NcclEnd issue(const EventLease& start, const Call& call,
                const std::function<void(cudaStream_t)>& behind = {});

  /// Memory of this rank in a symmetric window of the communicator. Collective. Its last owner waits for the
  /// GPU and frees it; after an abort, or if operations do not end, it is never freed.
  ///   Errors  InputError(missing) if the GPU has no such memory left; those of issue().
  ///   Source  NCCL user guide, "Window Registration" (2.27).
  static std::shared_ptr<void> window(const std::shared_ptr<NcclChannel>& channel, Bytes bytes);

  /// Throws if NCCL has reported an asynchronous error.
  void check();
  void abort() noexcept override;
  [[nodiscard]] cudaStream_t stream() const { return stream_.get(); }

 private:
  void until_accepted();
  void require(ncclResult_t result);
  void call_nccl(const std::function<ncclResult_t()>& call);
  [[nodiscard]] std::optional<ncclResult_t> state();
  [[nodiscard]] bool idle_soon() const;
  void finish() noexcept;
  void close(ncclWindow_t window, void* memory) noexcept;

  const std::shared_ptr<NcclGroup> group_;
  const std::string name_;
  CudaStream stream_;
  GpuMomentPtr began_;  // of the operation between begin() and end()
  std::mutex mutex_;    // held during every use of comm_, because abort() frees it
  ncclComm_t comm_ = nullptr;
  std::atomic<bool> stuck_ = false;
};

}  // namespace sc
