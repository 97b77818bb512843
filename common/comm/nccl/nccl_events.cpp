#include "common/comm/nccl/nccl_events.h"

#include <chrono>
#include <thread>

#include "common/comm/nccl/cuda_check.h"

namespace sc {

CudaStream make_priority_stream() {
  int lowest = 0, highest = 0;
  SC_CHECK(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  cudaStream_t stream = nullptr;
  SC_CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, highest));
  return CudaStream(stream);
}

CudaEvent make_event(bool timed) {
  cudaEvent_t event = nullptr;
  SC_CHECK(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming));
  return CudaEvent(event);
}

bool capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  SC_CHECK(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

namespace {

cudaError_t query(int device, cudaEvent_t event) noexcept {
  (void)cudaSetDevice(device);
  // CUDA forbids queries while any thread captures, unless the asking thread's capture mode is relaxed.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  const cudaError_t status = cudaEventQuery(event);
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  // Clears CUDA's sticky error, so that no later check finds it.
  if (status == cudaErrorNotReady) (void)cudaGetLastError();
  return status;
}

}  // namespace

bool event_passed(int device, cudaEvent_t event) noexcept {
  return query(device, event) != cudaErrorNotReady;
}

void wait_for_event(int device, cudaEvent_t event) {
  cudaError_t status = query(device, event);
  for (; status == cudaErrorNotReady; status = query(device, event))
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  SC_CHECK(status);
}

EventLease EventPool::lease() {
  CudaEvent event;
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      event = std::move(free_.back());
      free_.pop_back();
    }
  }
  if (!event) event = make_event(kind_ == Kind::timed);
  return {event.release(), [pool = shared_from_this()](cudaEvent_t used) {
            const std::lock_guard lock(pool->mutex_);
            pool->free_.emplace_back(used);
          }};
}

}  // namespace sc
