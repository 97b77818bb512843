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

/// A new stream of the current device with the highest priority, so that communication starts as soon as it
/// can. It is not from LibTorch's pool, which gives one stream to several users.
CudaStream make_priority_stream();
CudaEvent make_event(bool timed = false);
/// Whether work issued to `stream` now becomes part of a graph.
bool capturing(cudaStream_t stream);
/// Whether the work before the last record of `event` has ended, with or without an error. Not for events
/// recorded in a capture. Any thread may ask, and captures of other threads are not disturbed: `device` is
/// made current first, because CUDA would otherwise start on GPU 0 for a new thread.
bool event_passed(int device, cudaEvent_t event) noexcept;
/// Blocks until event_passed() is true; callable from any thread.
///   Errors  DeviceError if the work ended with an error.
void wait_for_event(int device, cudaEvent_t event);

/// A borrowed event, which the last holder gives back to its EventPool.
using EventLease = std::shared_ptr<CUevent_st>;

/// CUDA events that are reused, because making one is slow. Thread-safe.
class EventPool : public std::enable_shared_from_this<EventPool> {
 public:
  enum class Kind : bool { order, timed };  // waiting for events without timing is faster
  explicit EventPool(Kind kind = Kind::order) : kind_(kind) {}
  EventLease lease();

 private:
  const Kind kind_;
  std::mutex mutex_;
  std::vector<CudaEvent> free_;
};

/// Marks the point that `stream` has been given work up to, for timing on the GPU (gpu_moment.cpp).
GpuMomentPtr mark(cudaStream_t stream, EventPool& timed);

}  // namespace sc
