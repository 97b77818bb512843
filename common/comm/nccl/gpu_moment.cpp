#include "common/watch/gpu_moment.h"

#include <c10/cuda/CUDAStream.h>

#include <cmath>

#include "common/comm/nccl/cuda_check.h"
#include "common/comm/nccl/nccl_events.h"

namespace sc {
namespace {

class TimedEvent final : public GpuMoment {
 public:
  explicit TimedEvent(EventLease event) : event_(std::move(event)) {}
  [[nodiscard]] std::optional<std::chrono::nanoseconds> since(const GpuMoment& earlier) const override {
    float milliseconds = 0;
    const cudaError_t status = cudaEventElapsedTime(
        &milliseconds, static_cast<const TimedEvent&>(earlier).event_.get(), event_.get());
    if (status == cudaErrorNotReady) {
      (void)cudaGetLastError();  // clears the error, so that no later check finds it
      return std::nullopt;
    }
    SC_CHECK(status);
    return std::chrono::nanoseconds(std::llround(1e6 * static_cast<double>(milliseconds)));
  }
  void synchronize() const { SC_CHECK(cudaEventSynchronize(event_.get())); }

 private:
  EventLease event_;
};

std::shared_ptr<const TimedEvent> record(cudaStream_t stream, EventPool& timed) {
  EventLease event = timed.lease();
  const unsigned flags = capturing(stream) ? cudaEventRecordExternal : cudaEventRecordDefault;
  SC_CHECK(cudaEventRecordWithFlags(event.get(), stream, flags));
  return std::make_shared<const TimedEvent>(std::move(event));
}

std::shared_ptr<const TimedEvent> record_on_current_stream() {
  const auto pool = std::make_shared<EventPool>(EventPool::Kind::timed);
  return record(c10::cuda::getCurrentCUDAStream(), *pool);
}

}  // namespace

GpuMomentPtr mark(cudaStream_t stream, EventPool& timed) { return record(stream, timed); }

GpuMomentPtr gpu_moment() { return record_on_current_stream(); }

GpuOrigin gpu_origin() {
  const auto before = std::chrono::steady_clock::now();
  const std::shared_ptr<const TimedEvent> event = record_on_current_stream();
  event->synchronize();
  return {event, before + (std::chrono::steady_clock::now() - before) / 2};
}

}  // namespace sc
