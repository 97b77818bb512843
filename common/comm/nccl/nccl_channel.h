// One NCCL communicator with its stream, and the group it belongs to. Internal to comm.
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

/// What an operation leaves on its stream.
struct NcclEnd {
  EventLease event;           // follows it
  GpuMomentPtr began, ended;  // null unless the group traces
};

/// What a group ends when it is aborted.
class Abortable {
 public:
  virtual ~Abortable() = default;
  /// Any thread: what waits on the GPU for another rank ends.
  virtual void abort() noexcept = 0;
};

/// What the channels of one group of ranks share. A group that was split from an aborted one is aborted, too.
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
  /// Whether this group, one that it was split from, or a part of either ever had a window.
  std::shared_ptr<std::atomic<bool>> windows = std::make_shared<std::atomic<bool>>(false);

  /// Any thread: ends what its channels and its parts' do on the GPU, unless there were windows: a copy
  /// engine that waits for a rank that is gone waits for ever, and NCCL's abort of any communicator on that
  /// GPU for it.
  void abort() noexcept;
  void add(const std::weak_ptr<Abortable>& channel);
  void add(const std::shared_ptr<NcclGroup>& part);

  /// What comes on `stream` before an operation's own work, behind `start`; and what comes after it.
  GpuMomentPtr begin(cudaStream_t stream, const EventLease& start);
  NcclEnd end(cudaStream_t stream, GpuMomentPtr began);

 private:
  /// Marks this group and its parts, and collects their channels.
  void begin_abort(std::vector<std::shared_ptr<Abortable>>& channels);

  std::mutex mutex_;
  std::vector<std::weak_ptr<Abortable>> channels_;
  std::vector<std::weak_ptr<NcclGroup>> parts_;
};

/// A non-blocking ncclComm_t: each call of NCCL returns at once, and is asked until it has been accepted. One
/// thread issues; any thread may abort meanwhile.
///   Errors  DeviceError with `name` if NCCL reports an error; AbortedError after abort().
class NcclChannel : public Abortable {
 public:
  /// Issues one operation on the stream.
  using Call = std::function<ncclResult_t(ncclComm_t, cudaStream_t)>;

  /// `name` for messages: "rank 1: send to rank 2".
  NcclChannel(std::shared_ptr<NcclGroup> group, std::string name);
  /// Lets the operations on its stream end, then frees NCCL's memory; after 5 s aborts them, or, if there
  /// were windows, leaves them.
  ~NcclChannel() override;

  /// Starts to join the others with that id. Then accepted() becomes true.
  void begin_join(const ncclUniqueId& id, int rank, int ranks);
  /// Starts an operation that follows `start`. Then accepted() becomes true, and end() marks its end.
  void begin(const EventLease& start, const Call& call);
  /// Whether what was begun has been accepted.
  [[nodiscard]] bool accepted();
  [[nodiscard]] NcclEnd end() { return group_->end(stream(), std::move(began_)); }

  /// The last of these until accepted, at most the group's limit.
  void join(const ncclUniqueId& id, int rank, int ranks);
  /// behind: enqueues what belongs to the operation, too, after it.
  NcclEnd issue(const EventLease& start, const Call& call,
                const std::function<void(cudaStream_t)>& behind = {});

  /// Memory of this rank in a symmetric window of the communicator. Every rank of it calls this. Its last
  /// owner waits for the GPU and gives it back; after an abort, or where operations do not end, it is lost.
  ///   Errors  InputError(missing) if the GPU has no such memory left; as issue().
  ///   Source  NCCL user guide, "Window Registration" (2.27).
  static std::shared_ptr<void> window(const std::shared_ptr<NcclChannel>& channel, Bytes bytes);

  /// Throws if NCCL has met an error since.
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
  std::mutex mutex_;    // round every use of comm_: abort() frees it
  ncclComm_t comm_ = nullptr;
  std::atomic<bool> stuck_ = false;
};

}  // namespace sc
