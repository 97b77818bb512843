#include "common/comm/nccl/nccl_ticket.h"

#include <c10/cuda/CUDAStream.h>

#include <chrono>
#include <thread>
#include <utility>

#include "common/comm/nccl/cuda_check.h"

namespace sc {

void NcclOperation::issued(std::shared_ptr<NcclChannel> channel, NcclEnd end, bool captured) noexcept {
  channel_ = std::move(channel);
  end_ = std::move(end);
  captured_ = captured;
  issue_.finish();
}

bool NcclOperation::ended() const noexcept {
  if (group_->aborted) return true;
  if (!issue_.done()) return false;
  if (!end_.event || captured_) return true;  // an operation without an event failed before it was issued
  return event_passed(group_->device, end_.event.get());
}

GpuTimes NcclOperation::make_wait(cudaStream_t stream) {
  // The stream stays idle while the host waits for the issue, so the measured wait begins before that.
  GpuMomentPtr began = mark(stream, *group_->moments);
  issue_.wait();
  if (group_->aborted) throw AbortedError(text_ + ": the group was aborted");
  // The channel is released here, because the record may call ended() after the communicator is gone. Without
  // a channel (copy engines) there are no errors to check.
  if (const auto channel = std::exchange(channel_, nullptr)) channel->check();
  SC_CHECK(cudaStreamWaitEvent(stream, end_.event.get(), 0));
  return {std::move(began), mark(stream, *group_->moments), end_.began, end_.ended, captured_};
}

void NcclOperation::until_ended() const {
  while (!ended()) std::this_thread::sleep_for(std::chrono::microseconds(20));
}

void NcclOperation::wait_on_host() {
  issue_.wait();
  if (captured_) throw DeviceError(text_ + ": a captured operation cannot be waited for on the host");
  until_ended();
  if (!group_->aborted && end_.event)
    wait_for_event(group_->device, end_.event.get());  // throws if the work ended with an error
  if (group_->aborted) throw AbortedError(text_ + ": the group was aborted");
  if (const auto channel = std::exchange(channel_, nullptr)) channel->check();
}

OpEnd NcclTicket::end() {
  return {[operation = operation_] { return operation->ended(); },
          [operation = operation_] { operation->until_ended(); }};
}

void NcclTicket::wait() {
  times_ = operation_->make_wait(c10::cuda::getCurrentCUDAStream(first_.get_device()));
}

}  // namespace sc
