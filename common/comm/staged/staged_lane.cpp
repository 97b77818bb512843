#include "common/comm/staged/staged_lane.h"

#include <ATen/ops/from_blob.h>

#include "common/comm/nccl/cuda_check.h"

namespace sc {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

void StagedLane::Work::to_host(void* host, const void* gpu, std::int64_t bytes) {
  SC_CHECK(cudaMemcpyAsync(host, gpu, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost,
                           lane_.stream_.get()));
}

void StagedLane::Work::to_gpu(void* gpu, const void* host, std::int64_t bytes) {
  SC_CHECK(cudaMemcpyAsync(gpu, host, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice,
                           lane_.stream_.get()));
}

void StagedLane::Work::sync() { SC_CHECK(cudaStreamSynchronize(lane_.stream_.get())); }

void StagedLane::Work::wait(Ticket ticket) {
  while (!ticket.ready()) {
    if (lane_.must_end()) {
      (void)ticket.release();
      throw AbortedError("the communicator ended before the other rank came");
    }
    std::this_thread::sleep_for(50us);
  }
  ticket.wait();
}

at::Tensor StagedLane::Work::piece(std::int64_t begin, std::int64_t elements, at::ScalarType type) const {
  char* data = static_cast<char*>(lane_.scratch_.mutable_data_ptr()) + lane_.begin_ + begin;
  // A receive that was given up writes here until MPI ends.
  return at::from_blob(
      data, {elements}, [keep = lane_.scratch_](void*) {}, at::TensorOptions().dtype(type));
}

StagedLane::StagedLane(int device, at::Tensor scratch, std::int64_t begin, bool receives)
    : device_(device),
      scratch_(std::move(scratch)),
      begin_(begin),
      receives_(receives),
      stream_(make_priority_stream()),
      thread_([this] { run(); }) {}

StagedLane::~StagedLane() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    stop_at_ = Clock::now() + (receives_ ? 0s : 5s);
  }
  changed_.notify_all();
  thread_.join();
}

bool StagedLane::must_end() {
  const std::lock_guard lock(mutex_);
  return stop_ && Clock::now() >= stop_at_;
}

void StagedLane::post(Operation operation) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(operation));
  }
  changed_.notify_all();
}

void StagedLane::run() {
  (void)cudaSetDevice(device_);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Operation operation = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    execute(operation);
    lock.lock();
  }
}

void StagedLane::execute(Operation& operation) {
  const std::shared_ptr<Completion> end = operation.end;
  std::optional<OpFailure> failure;
  try {
    if (operation.start) SC_CHECK(cudaStreamWaitEvent(stream_.get(), operation.start.get(), 0));
    Work work(*this);
    operation.body(work);
    work.sync();
  } catch (...) {
    failure = failure_from_current_exception();
    if (failure->where.empty()) failure->where = operation.text;
  }
  operation = {};  // with its tensors, before anybody returns from wait()
  failure ? end->fail(*failure) : end->finish();
}

}  // namespace sc
