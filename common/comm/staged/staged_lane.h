// Operations that run one after the other on a thread of their own, between a GPU and host memory. Internal
// to comm.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "common/comm/communicator.h"
#include "common/comm/completion.h"
#include "common/comm/nccl/nccl_events.h"

namespace sc {

class StagedLane {
 public:
  /// What an operation may do, on the lane's thread.
  class Work {
   public:
    explicit Work(StagedLane& lane) : lane_(lane) {}
    void to_host(void* host, const void* gpu, std::int64_t bytes);
    void to_gpu(void* gpu, const void* host, std::int64_t bytes);
    /// Until the copies have ended.
    void sync();
    /// As Ticket::wait(), but it ends when the lane has to: AbortedError.
    void wait(Ticket ticket);
    /// The lane's piece of host memory, as `elements` of a dtype from byte `begin` on.
    [[nodiscard]] at::Tensor piece(std::int64_t begin, std::int64_t elements, at::ScalarType type) const;

   private:
    StagedLane& lane_;
  };
  struct Operation {
    std::string text;
    EventLease start;  // after the caller's work; none for CPU tensors
    std::function<void(Work&)> body;
    at::Tensor first, second;
    std::shared_ptr<Completion> end = std::make_shared<Completion>();
  };

  /// `scratch`: u8, its pieces keep it alive. `receives`: nothing that it waits for is worth waiting for at
  /// the end.
  StagedLane(int device, at::Tensor scratch, std::int64_t begin, bool receives);
  ~StagedLane();
  StagedLane(const StagedLane&) = delete;
  StagedLane& operator=(const StagedLane&) = delete;

  void post(Operation operation);

 private:
  void run();
  void execute(Operation& operation);
  [[nodiscard]] bool must_end();

  const int device_;
  const at::Tensor scratch_;
  const std::int64_t begin_;  // of this lane's part of it, in bytes
  const bool receives_;
  CudaStream stream_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Operation> queue_;
  bool stop_ = false;
  std::chrono::steady_clock::time_point stop_at_;
  std::thread thread_;  // last: starts when the rest is there
};

}  // namespace sc
