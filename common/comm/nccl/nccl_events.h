// CUDA streams and events with an owner. Internal to comm.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>
#include <vector>

#include "common/base/handle.h"
#include "common/watch/gpu_moment.h"

namespace sc {

struct DestroyStream {
  void operator()(cudaStream_t stream) const noexcept { (void)cudaStreamDestroy(stream); }
};
struct DestroyEvent {
  void operator()(cudaEvent_t event) const noexcept { (void)cudaEventDestroy(event); }
};
using CudaStream = UniqueHandle<cudaStream_t, DestroyStream>;
using CudaEvent = UniqueHandle<cudaEvent_t, DestroyEvent>;

/// A stream of its own, not one of LibTorch's pool, which hands the same ones to everybody. Of the highest
/// priority: communication starts as soon as it can. Of the current device.
CudaStream make_priority_stream();
CudaEvent make_event(bool timed = false);
/// Whether work that is issued to `stream` now goes into a graph.
bool capturing(cudaStream_t stream);
/// Whether the work before the last record of `event` has ended; also true if it ended badly. Not for an
/// event recorded in a capture. Any thread: it makes `device` current first, since a thread that has none
/// would start CUDA on GPU 0; and it disturbs no capture of another thread.
bool event_passed(int device, cudaEvent_t event) noexcept;
/// Blocks until it has; any thread, as event_passed.  Errors: DeviceError if the work ended badly.
void wait_for_event(int device, cudaEvent_t event);

/// An event, given back to its pool by the last holder.
using EventLease = std::shared_ptr<CUevent_st>;

/// Events that are used again and again. Thread-safe.
class EventPool : public std::enable_shared_from_this<EventPool> {
 public:
  enum class Kind : bool { order, timed };  // events without timing are the faster ones to wait for
  explicit EventPool(Kind kind = Kind::order) : kind_(kind) {}
  EventLease lease();

 private:
  const Kind kind_;
  std::mutex mutex_;
  std::vector<CudaEvent> free_;
};

/// The point that `stream` has been given work up to (gpu_moment.cpp).
GpuMomentPtr mark(cudaStream_t stream, EventPool& timed);

}  // namespace sc
