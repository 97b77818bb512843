#include "tests/exercises/world.h"

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "common/comm/forwarding_communicator.h"
#include "tests/exercises/check.h"
#include "tests/support/delaying_communicator.h"

namespace sc::exercise {

/// Knows what every rank waits for. Between two operations a rank is neither waiting nor done, so it can
/// still move others.
class RankWatch {
 public:
  explicit RankWatch(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {}

  World::Traffic& traffic(int rank) { return one(rank).traffic; }  // the rank's own thread
  /// Notes that a rank begins to wait; true if no rank can go on any more.
  [[nodiscard]] bool begin_wait(int rank, TicketState* state, const std::string& text) {
    const std::lock_guard lock(mutex_);
    one(rank).waiting = {state, text};
    ++traffic(rank).waits;
    return stuck();
  }
  void end_wait(int rank) {
    const std::lock_guard lock(mutex_);
    one(rank).waiting = {};
  }
  [[nodiscard]] bool done(int rank) {
    const std::lock_guard lock(mutex_);
    one(rank).done = true;
    return stuck();
  }
  /// The report of a hang; empty if there was none.
  [[nodiscard]] const std::string& hang() const { return hang_; }

 private:
  struct Wait {
    TicketState* state = nullptr;
    std::string text;
  };
  struct One {
    Wait waiting;
    bool done = false;
    World::Traffic traffic;
  };
  One& one(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  bool stuck() {
    std::string who, ended;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const One& rank = ranks_[r];
      if (rank.done) {
        ended += "\nrank " + std::to_string(r) + " has ended";
        continue;
      }
      if (rank.waiting.state == nullptr || rank.waiting.state->ready()) return false;
      who += (who.empty() ? "rank " : "\nrank ") + std::to_string(r) + " waits for " + rank.waiting.text;
    }
    if (who.empty()) return false;  // all done
    if (hang_.empty()) hang_ = "nobody can go on\n" + who + ended;
    return true;
  }

  std::mutex mutex_;
  std::vector<One> ranks_;
  std::string hang_;
};

namespace {

class WatchedTicket : public TicketState {
 public:
  WatchedTicket(std::unique_ptr<TicketState> inner, std::shared_ptr<RankWatch> watch, Communicator& group,
                int me, std::string text)
      : inner_(std::move(inner)), watch_(std::move(watch)), group_(group), me_(me), text_(std::move(text)) {}
  bool ready() override { return inner_->ready(); }
  void wait() override {
    if (watch_->begin_wait(me_, inner_.get(), text_)) group_.abort();
    const std::shared_ptr<void> end(nullptr, [this](void*) { watch_->end_wait(me_); });  // also if it throws
    inner_->wait();
  }
  void dropped() noexcept override { inner_->dropped(); }
  std::optional<std::chrono::steady_clock::time_point> ended_at() override { return inner_->ended_at(); }

 private:
  std::unique_ptr<TicketState> inner_;
  std::shared_ptr<RankWatch> watch_;
  Communicator& group_;  // outlives tickets
  int me_;
  std::string text_;
};

class WatchedCommunicator : public ForwardingCommunicator {
 public:
  /// `me` is the rank in the world, whatever group this is.
  WatchedCommunicator(std::unique_ptr<Communicator> inner, std::shared_ptr<RankWatch> watch, int me)
      : ForwardingCommunicator(std::move(inner)), watch_(std::move(watch)), me_(me) {}
  // The barrier is an operation like any other, so that the watch can ask whether it has ended for a waiting
  // rank.
  void barrier() override {
    at::Tensor nothing = at::zeros({1}, at::kByte);
    watched(inner().all_reduce(nothing), "its barrier").wait();
  }
  std::unique_ptr<Communicator> split(int color) override {
    std::unique_ptr<Communicator> group = inner().split(color);
    return group ? std::make_unique<WatchedCommunicator>(std::move(group), watch_, me_) : nullptr;
  }
  Ticket issue(const Operation& op, const at::Tensor& from, const at::Tensor& to,
               std::optional<Rank> peer) override {
    const bool sends = op.kind == CommKind::send, receives = op.kind == CommKind::recv;
    World::Traffic& mine = watch_->traffic(me_);
    if (op.elements.value() > 0 && (sends || receives))
      (sends ? mine.to : mine.from).push_back(static_cast<int>(*peer));
    std::string text =
        "its " + std::string(name_of(op.kind)) + " of " + std::to_string(op.elements.value()) + " elements";
    if (peer) text += (sends ? " to rank " : " from rank ") + std::to_string(to_int(*peer));
    return watched(inner().issue(op, from, to, peer), std::move(text));
  }

 private:
  Ticket watched(Ticket ticket, std::string text) {
    return Ticket(std::make_unique<WatchedTicket>(ticket.release(), watch_, *this, me_, std::move(text)));
  }

  std::shared_ptr<RankWatch> watch_;
  int me_;
};

// Rethrows the error that is the cause: other ranks only learn that the group was aborted.
void rethrow_first(const std::vector<std::exception_ptr>& errors) {
  std::exception_ptr aborted;
  for (const std::exception_ptr& error : errors) {
    if (!error) continue;
    try {
      std::rethrow_exception(error);
    } catch (const AbortedError&) {
      aborted = error;
    }
  }
  if (aborted) std::rethrow_exception(aborted);
}

}  // namespace

World::World(int ranks, bool delays)
    : local_(ranks), delays_(delays), watch_(std::make_shared<RankWatch>(ranks)) {
  for (int r = 0; r < ranks; ++r) {
    std::unique_ptr<Communicator> comm = local_.communicator(Rank{r});
    comm =
        delays ? delayed(std::move(comm)) : std::make_unique<WatchedCommunicator>(std::move(comm), watch_, r);
    comms_.push_back(std::make_unique<RecordingCommunicator>(std::move(comm)));
  }
}

World::~World() = default;

void World::run(const std::function<void(RecordingCommunicator&)>& body) {
  std::vector<std::exception_ptr> errors(comms_.size());
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < size(); ++r)
      threads.emplace_back([&, r] {
        const c10::InferenceMode inference;
        at::set_num_threads(1);
        RecordingCommunicator& comm = *comms_[static_cast<std::size_t>(r)];
        comm.set_phase("train");
        try {
          body(comm);
        } catch (...) {
          errors[static_cast<std::size_t>(r)] = std::current_exception();
          comm.abort();
        }
        if (!delays_ && watch_->done(r)) comm.abort();
      });
  }
  if (!watch_->hang().empty()) throw NotReached(watch_->hang());
  rethrow_first(errors);
  for (int r = 0; r < size(); ++r) {
    const std::int64_t dropped = comms_[static_cast<std::size_t>(r)]->dropped_tickets();
    require(dropped == 0, "rank " + std::to_string(r) + " never waited for " + std::to_string(dropped) +
                              " of its operations");
  }
}

const World::Traffic& World::traffic(int rank) const { return watch_->traffic(rank); }

void Moments::note(int computed) {
  moments_.push_back(
      {computed, comm_.record().operations(), world_.traffic(static_cast<int>(comm_.rank())).waits});
}

void Moments::require_descent(
    int last, const std::string& where, const std::string& name,
    const std::function<void(int, const Moment&, const std::string&)>& judge) const {
  int turn = last;
  for (const Moment& moment : moments_) {
    const std::string its = name + " " + std::to_string(turn);
    require(moment.computed == turn, where + name + " " + std::to_string(moment.computed) +
                                         " was computed, it was " + its + "'s turn");
    judge(turn, moment, where + "before " + its + " was computed, ");
    --turn;
  }
  require(turn == -1, where + name + " " + std::to_string(turn) + " was never computed");
}

}  // namespace sc::exercise
