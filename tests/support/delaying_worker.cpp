#include "tests/support/delaying_worker.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <utility>

#include "common/comm/completion.h"

namespace sc {

void Pause::operator()() {
  std::chrono::microseconds length{0};
  {
    const std::lock_guard lock(mutex_);
    length =
        std::chrono::microseconds(std::uniform_int_distribution<std::int64_t>(0, longest_.count())(random_));
  }
  std::this_thread::sleep_for(length);
}

void poison(const at::Tensor& t) {
  if (t.numel() > 0) std::memset(t.mutable_data_ptr(), 0xff, t.nbytes());
}

namespace {

void copy_bytes(const at::Tensor& from, const at::Tensor& to) {
  if (from.numel() > 0) std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
}

at::Tensor apart(const at::Tensor& t) {
  auto* bytes = new std::byte[std::max<std::size_t>(1, t.nbytes())];
  return at::from_blob(
      bytes, t.sizes(), [bytes](void*) { delete[] bytes; }, t.options());
}

}  // namespace

at::Tensor SetApart::copied(const at::Tensor& t) {
  at::Tensor copy = apart(t);
  copy_bytes(t, copy);
  return copy;
}

at::Tensor SetApart::read(const at::Tensor& t) {
  reads_.push_back({copied(t), t});
  return copied(t);
}

at::Tensor SetApart::changed(const at::Tensor& t) {
  at::Tensor copy = copied(t);
  poison(t);
  lands(copy, t);
  return copy;
}

at::Tensor SetApart::written(const at::Tensor& t) {
  at::Tensor copy = apart(t);
  poison(t);
  lands(copy, t);
  return copy;
}

void SetApart::land() {
  for (const Pair& read : std::exchange(reads_, {}))
    if (read.copy.numel() > 0 &&
        std::memcmp(read.copy.const_data_ptr(), read.callers.const_data_ptr(), read.copy.nbytes()) != 0)
      throw std::logic_error("what an operation reads was overwritten before anybody waited for it");
  for (const Pair& landing : std::exchange(landings_, {})) copy_bytes(landing.copy, landing.callers);
}

/// An operation between post() and its landing.
struct DelayingWorker::Job {
  std::function<Ticket()> issue;
  Completion issued;
  Ticket ticket;  // written before `issued` ends, as its end is
  OpEnd end;
  std::mutex landing;
  SetApart apart;

  /// Called when the operation has ended without an error: copies results to the caller's tensors, once.
  void land() {
    const std::lock_guard lock(landing);
    apart.land();
  }
};

class DelayingWorker::DelayedTicket : public TicketState {
 public:
  DelayedTicket(std::shared_ptr<Job> job, std::shared_ptr<Pause> pause, std::shared_ptr<DropCounter> drops)
      : job_(std::move(job)), pause_(std::move(pause)), drops_(std::move(drops)) {}
  bool ready() override {
    if (!job_->issued.done()) return false;
    const std::lock_guard lock(mutex_);
    return state_ ? state_->ready() : job_->ticket.ready();  // the watchdog's question, too: nothing lands
  }
  void wait() override {
    job_->issued.wait();
    (*pause_)();
    {
      const std::lock_guard lock(mutex_);
      state_ = job_->ticket.release();
    }
    if (state_) state_->wait();
    job_->land();
  }
  OpEnd end() override {
    return {[job = job_] {
              if (!job->issued.done() || !job->end.passed()) return false;
              job->land();
              return true;
            },
            [job = job_] {
              job->issued.wait();
              job->end.wait();
              job->land();
            }};
  }
  void dropped() noexcept override { drops_->add(); }

 private:
  std::shared_ptr<Job> job_;
  std::shared_ptr<Pause> pause_;
  std::shared_ptr<DropCounter> drops_;
  std::mutex mutex_;                    // ready() comes from any thread
  std::unique_ptr<TicketState> state_;  // the inner operation, once somebody waits for it
};

DelayingWorker::DelayingWorker(std::uint64_t seed, std::chrono::microseconds longest,
                               std::shared_ptr<DropCounter> drops)
    : before_(seed, longest),
      after_(std::make_shared<Pause>(seed ^ 0x5bd1e995, longest)),
      drops_(std::move(drops)),
      thread_([this] { run(); }) {}

DelayingWorker::~DelayingWorker() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void DelayingWorker::flush() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return jobs_.empty(); });
}

Ticket DelayingWorker::post(SetApart apart, std::function<Ticket()> issue) {
  auto job = std::make_shared<Job>();
  job->apart = std::move(apart);
  job->issue = std::move(issue);
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(job);
  }
  changed_.notify_all();
  return Ticket(std::make_unique<DelayedTicket>(std::move(job), after_, drops_));
}

void DelayingWorker::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    std::shared_ptr<Job> job = jobs_.front();
    lock.unlock();
    before_();
    std::optional<OpFailure> failure;
    try {
      job->ticket = job->issue();
      job->end = job->ticket.end();
    } catch (...) {
      failure = failure_from_current_exception();
    }
    job->issue = nullptr;  // its tensors are the inner ticket's business now
    failure ? job->issued.fail(*failure) : job->issued.finish();
    job.reset();
    lock.lock();
    jobs_.pop_front();
    changed_.notify_all();
  }
}

}  // namespace sc
