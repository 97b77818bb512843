#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include "common/comm/completion.h"
#include "common/comm/copies/copies.h"
#include "common/comm/nccl/cuda_check.h"
#include "common/comm/nccl/nccl_events.h"

namespace sc {
namespace {

class GpuCopyTicket final : public TicketState {
 public:
  GpuCopyTicket(int device, EventLease end, std::shared_ptr<EventPool> moments, GpuTimes times,
                std::shared_ptr<DropCounter> drops, at::Tensor from, at::Tensor to)
      : device_(device),
        end_(std::move(end)),
        moments_(std::move(moments)),
        drops_(std::move(drops)),
        from_(std::move(from)),
        to_(std::move(to)),
        times_(std::move(times)) {}
  /// Whether the copy has ended. One captured into a graph counts as ended, since the graph runs it later.
  bool ready() override { return times_.captured || event_passed(device_, end_.get()); }
  void wait() override {
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device_));
    times_.wait_began = mark(stream, *moments_);
    SC_CHECK(cudaStreamWaitEvent(stream, end_.get(), 0));
    times_.wait_ended = mark(stream, *moments_);
  }
  void wait_on_host() override {
    if (times_.captured) throw DeviceError("a captured copy cannot be waited for on the host");
    wait_for_event(device_, end_.get());
  }
  void dropped() noexcept override { drops_->add(); }
  std::function<bool()> ended_later() override {
    return [device = device_, end = end_, captured = times_.captured] {
      return captured || event_passed(device, end.get());
    };
  }
  [[nodiscard]] OpEnd end() override {
    if (times_.captured) throw std::logic_error("a captured copy has no end on the host");
    return {[device = device_, end = end_] { return event_passed(device, end.get()); },
            [device = device_, end = end_] { wait_for_event(device, end.get()); }};
  }
  [[nodiscard]] GpuTimes gpu_times() override { return times_; }

 private:
  const int device_;
  const EventLease end_;
  const std::shared_ptr<EventPool> moments_;
  const std::shared_ptr<DropCounter> drops_;
  const at::Tensor from_, to_;
  GpuTimes times_;
};

class GpuCopies final : public Copies {
 public:
  GpuCopies() : device_(c10::cuda::current_device()) {}
  // Waits for copies in flight, which still use the caller's tensors.
  ~GpuCopies() override {
    for (const CudaStream* stream : {&down_, &up_})
      if (*stream) (void)cudaStreamSynchronize(stream->get());
  }
  [[nodiscard]] std::int64_t dropped_tickets() const override { return drops_->count(); }

  [[nodiscard]] After issued() override { return here(); }
  Ticket issue(const Operation& op, const at::Tensor& from, const at::Tensor& to, OfStep /*of_step*/,
               const After& after) override {
    CudaStream& own = op.kind == CommKind::to_host ? down_ : up_;
    if (!own) own = make_priority_stream();
    const cudaStream_t lane = own.get();
    const EventLease start = after ? std::static_pointer_cast<CUevent_st>(after) : here(),
                     end = order_->lease();
    SC_CHECK(cudaStreamWaitEvent(lane, start.get(), 0));
    GpuMomentPtr began = mark(lane, *moments_);
    SC_CHECK(cudaMemcpyAsync(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes(), cudaMemcpyDefault,
                             lane));
    GpuMomentPtr ended = mark(lane, *moments_);
    SC_CHECK(cudaEventRecord(end.get(), lane));
    const GpuTimes times{{}, {}, std::move(began), std::move(ended), capturing(callers_stream())};
    return Ticket(std::make_unique<GpuCopyTicket>(device_, end, moments_, times, drops_, from, to));
  }

 private:
  [[nodiscard]] cudaStream_t callers_stream() const {
    return c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device_));
  }
  /// An event recorded after the work that the caller's stream has been given so far.
  [[nodiscard]] EventLease here() {
    EventLease event = order_->lease();
    SC_CHECK(cudaEventRecord(event.get(), callers_stream()));
    return event;
  }

  const int device_;
  std::shared_ptr<EventPool> order_ = std::make_shared<EventPool>();
  std::shared_ptr<EventPool> moments_ = std::make_shared<EventPool>(EventPool::Kind::timed);
  std::shared_ptr<DropCounter> drops_ = std::make_shared<DropCounter>();
  CudaStream down_, up_;  // made by the first copy
};

}  // namespace

std::unique_ptr<Copies> make_gpu_copies() { return std::make_unique<GpuCopies>(); }

}  // namespace sc
