#include "tests/support/delaying_worker.h"

#include <cstring>
#include <optional>

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

/// An operation on its way.
struct DelayingWorker::Job {
  std::function<Ticket()> issue;
  Completion issued;
  Ticket ticket;  // written before `issued` ends, as its end is
  OpEnd end;
};

class DelayingWorker::DelayedTicket : public TicketState {
 public:
  DelayedTicket(std::shared_ptr<Job> job, std::shared_ptr<Pause> pause, std::shared_ptr<DropCounter> drops)
      : job_(std::move(job)), pause_(std::move(pause)), drops_(std::move(drops)) {}
  bool ready() override {
    if (!job_->issued.done()) return false;
    const std::lock_guard lock(mutex_);
    return state_ ? state_->ready() : job_->ticket.ready();
  }
  void wait() override {
    job_->issued.wait();
    (*pause_)();
    {
      const std::lock_guard lock(mutex_);
      state_ = job_->ticket.release();
    }
    if (state_) state_->wait();
  }
  OpEnd end() override {
    return {[job = job_] { return job->issued.done() && job->end.passed(); },
            [job = job_] {
              job->issued.wait();
              job->end.wait();
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

Ticket DelayingWorker::post(std::function<Ticket()> issue) {
  auto job = std::make_shared<Job>();
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

void poison(const at::Tensor& t) {
  if (t.numel() > 0) std::memset(t.mutable_data_ptr(), 0xff, t.nbytes());
}

}  // namespace sc
