#include "tests/support/delaying_communicator.h"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "common/comm/completion.h"
#include "common/comm/op_check.h"

namespace sc {
namespace {

/// Sleeps for a random time. Thread-safe.
class Pause {
 public:
  Pause(std::uint64_t seed, std::chrono::microseconds longest) : random_(seed), longest_(longest) {}
  void operator()() {
    std::chrono::microseconds length{0};
    {
      const std::lock_guard lock(mutex_);
      length = std::chrono::microseconds(
          std::uniform_int_distribution<std::int64_t>(0, longest_.count())(random_));
    }
    std::this_thread::sleep_for(length);
  }

 private:
  std::mutex mutex_;
  std::mt19937_64 random_;
  const std::chrono::microseconds longest_;
};

/// An operation on its way to the inner communicator.
struct Job {
  std::function<Ticket()> issue;
  Completion issued;
  Ticket ticket;  // written before `issued` ends
};

}  // namespace

class DelayingCommunicator::Worker {
 public:
  Worker(std::uint64_t seed, std::chrono::microseconds longest, std::shared_ptr<DropCounter> drops)
      : before_(seed, longest),
        after_(std::make_shared<Pause>(seed ^ 0x5bd1e995, longest)),
        drops_(std::move(drops)),
        thread_([this] { run(); }) {}
  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Ticket post(std::function<Ticket()> issue);
  /// Blocks until every operation so far has been issued.
  void flush() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return jobs_.empty(); });
  }
  [[nodiscard]] const std::shared_ptr<DropCounter>& drops() const { return drops_; }

 private:
  void run();

  Pause before_;
  std::shared_ptr<Pause> after_;
  const std::shared_ptr<DropCounter> drops_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> jobs_;  // the front stays until it has been issued
  bool stop_ = false;
  std::thread thread_;  // last: starts when the rest is there
};

namespace {

class DelayedTicket : public TicketState {
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
  void dropped() noexcept override { drops_->add(); }

 private:
  std::shared_ptr<Job> job_;
  std::shared_ptr<Pause> pause_;
  std::shared_ptr<DropCounter> drops_;
  std::mutex mutex_;                    // ready() comes from any thread
  std::unique_ptr<TicketState> state_;  // the inner operation, once somebody waits for it
};

void poison(const at::Tensor& t) {
  if (t.numel() > 0) std::memset(t.mutable_data_ptr(), 0xff, t.nbytes());
}

bool alias(const at::Tensor& full, const at::Tensor& shard, Rank rank) {
  return shard.numel() > 0 && static_cast<const char*>(shard.const_data_ptr()) ==
                                  static_cast<const char*>(full.const_data_ptr()) +
                                      to_int(rank) * static_cast<std::int64_t>(shard.nbytes());
}

}  // namespace

Ticket DelayingCommunicator::Worker::post(std::function<Ticket()> issue) {
  auto job = std::make_shared<Job>();
  job->issue = std::move(issue);
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(job);
  }
  changed_.notify_all();
  return Ticket(std::make_unique<DelayedTicket>(std::move(job), after_, drops_));
}

void DelayingCommunicator::Worker::run() {
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

DelayingCommunicator::DelayingCommunicator(std::unique_ptr<Communicator> inner, std::uint64_t seed,
                                           std::chrono::microseconds longest)
    : DelayingCommunicator(std::move(inner), seed, longest, std::make_shared<DropCounter>()) {}

DelayingCommunicator::DelayingCommunicator(std::unique_ptr<Communicator> inner, std::uint64_t seed,
                                           std::chrono::microseconds longest,
                                           std::shared_ptr<DropCounter> drops)
    : inner_(std::move(inner)),
      seed_(seed),
      longest_(longest),
      worker_(std::make_unique<Worker>(seed, longest, std::move(drops))) {}

DelayingCommunicator::~DelayingCommunicator() = default;

Rank DelayingCommunicator::rank() const { return inner_->rank(); }
WorldSize DelayingCommunicator::size() const { return inner_->size(); }
void DelayingCommunicator::abort() noexcept { inner_->abort(); }
std::int64_t DelayingCommunicator::dropped_tickets() const { return worker_->drops()->count(); }

void DelayingCommunicator::barrier() {
  worker_->flush();
  inner_->barrier();
}

std::shared_ptr<void> DelayingCommunicator::window(Bytes bytes) {
  worker_->flush();
  return inner_->window(bytes);
}

std::unique_ptr<Communicator> DelayingCommunicator::split(int color) {
  worker_->flush();
  std::unique_ptr<Communicator> part = inner_->split(color);
  if (!part) return nullptr;
  return std::unique_ptr<Communicator>(new DelayingCommunicator(
      std::move(part), seed_ * 31 + 1, longest_, std::make_shared<DropCounter>(worker_->drops())));
}

Ticket DelayingCommunicator::all_reduce(at::Tensor& t) {
  check_all_reduce({rank(), size()}, t);
  return worker_->post([this, t]() mutable { return inner_->all_reduce(t); });
}

Ticket DelayingCommunicator::reduce_scatter(const at::Tensor& full, at::Tensor& shard) {
  check_reduce_scatter({rank(), size()}, full, shard);
  if (!alias(full, shard, rank())) poison(shard);
  return worker_->post([this, full, shard]() mutable { return inner_->reduce_scatter(full, shard); });
}

Ticket DelayingCommunicator::all_gather(const at::Tensor& shard, at::Tensor& full) {
  check_all_gather({rank(), size()}, shard, full);
  auto* bytes = static_cast<char*>(full.mutable_data_ptr());
  for (std::int64_t r = 0; r < to_int(size()) && shard.numel() > 0; ++r) {
    if (r == to_int(rank()) && alias(full, shard, rank())) continue;
    std::memset(bytes + r * static_cast<std::int64_t>(shard.nbytes()), 0xff, shard.nbytes());
  }
  return worker_->post([this, shard, full]() mutable { return inner_->all_gather(shard, full); });
}

Ticket DelayingCommunicator::broadcast(at::Tensor& t, Rank root) {
  check_broadcast({rank(), size()}, t, root);
  if (root != rank()) poison(t);
  return worker_->post([this, t, root]() mutable { return inner_->broadcast(t, root); });
}

Ticket DelayingCommunicator::send(const at::Tensor& t, Rank to) {
  check_send({rank(), size()}, t, to);
  return worker_->post([this, t, to] { return inner_->send(t, to); });
}

Ticket DelayingCommunicator::recv(at::Tensor& t, Rank from) {
  check_recv({rank(), size()}, t, from);
  poison(t);
  return worker_->post([this, t, from]() mutable { return inner_->recv(t, from); });
}

}  // namespace sc
