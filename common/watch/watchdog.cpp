#include "common/watch/watchdog.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <mutex>

#include "common/base/check.h"
#include "common/watch/process_alive.h"

namespace sc {
namespace {

using namespace std::chrono_literals;
constexpr auto kLongestInterval = 100ms;
constexpr auto kGoneLimit = 2s;  // a launcher usually notices a dead rank earlier
constexpr int kLostRank = static_cast<int>(ExitCode::lost_rank);

// These are globals because signal handlers reach nothing else.
volatile sig_atomic_t g_terminate = 0;
void note_terminate(int signal) { g_terminate = signal == SIGUSR1 ? SIGTERM : signal; }

void watch_for(int signal) {
  struct sigaction action = {};
  action.sa_handler = note_terminate;
  action.sa_flags = SA_RESTART;
  ::sigaction(signal, &action, nullptr);
}

std::chrono::milliseconds stale_after(std::chrono::milliseconds limit) {
  return std::clamp<std::chrono::milliseconds>(limit / 2, 500ms, 5000ms);
}

}  // namespace

Watchdog::Watchdog(ProgressBoard& board, Rank rank, Outstanding outstanding, WatchdogOptions options)
    : board_(board), rank_(rank), outstanding_(std::move(outstanding)), options_(std::move(options)) {
  if (!options_.step_limit) options_.step_limit = options_.limit * (to_int(board.world()) == 1 ? 1 : 10);
  interval_ = std::min<Duration>(kLongestInterval, options_.limit / 10);
  if (options_.on_sigterm) {
    watch_for(SIGTERM);
    watch_for(SIGUSR1);
  }
  if (options_.on_sigint) {
    watch_for(SIGINT);
    watch_for(SIGHUP);
  }
  board_.join(rank_);
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

Watchdog::~Watchdog() {
  thread_ = {};
  if (options_.on_sigint) {  // restores the default, since this thread has ended
    (void)std::signal(SIGINT, SIG_DFL);
    (void)std::signal(SIGHUP, SIG_DFL);
  }
  board_.leave(rank_);
}

void Watchdog::step_begin(std::int64_t /*step*/) {
  ++moves_;
  writes_ = false;
  in_step_ = true;
}

void Watchdog::step_end() {
  ++moves_;
  in_step_ = false;
}

void Watchdog::run(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  auto before = std::chrono::steady_clock::now();
  while (!stop.stop_requested() && !expired_) {
    stopped.wait_for(lock, stop, interval_, [] { return false; });
    const auto now = std::chrono::steady_clock::now();
    // A larger gap means that this process was stopped, not the others.
    clock_ += std::min<Duration>(now - before, 5 * interval_);
    before = now;
    board_.heartbeat(rank_, moves_);
    look();
  }
}

void Watchdog::look() {
  const int signal = g_terminate;
  look_at_others();  // after the signal, so that the rank whose end made mpirun send it is seen to be gone
  if (signal != 0 && (options_.on_sigterm || options_.on_sigint)) {
    if (!leaves_it_to_the_run(signal)) return on_terminate(signal);
  }
  if (const auto overdue = overdue_operation()) {
    expire(describe_hang(board_, rank_, overdue, options_.limit, stale_after(options_.limit)));
  } else if (const auto limit = writes_ ? options_.limit : *options_.step_limit; step_stands_still(limit)) {
    expire(describe_hang(board_, rank_, std::nullopt, limit, stale_after(options_.limit)));
  } else if (somebody_is_gone_) {
    if (!gone_since_) gone_since_ = clock_;
    if (clock_ - *gone_since_ > kGoneLimit) {
      expire(describe_hang(board_, rank_, std::nullopt, options_.limit, stale_after(options_.limit)));
    }
  }
}

std::optional<OutstandingOp> Watchdog::overdue_operation() {
  std::map<std::int64_t, Duration> seen;
  std::optional<OutstandingOp> overdue;
  if (!outstanding_) return overdue;
  const std::vector<OutstandingOp> outstanding = outstanding_();
  note_transfers(outstanding);
  for (const OutstandingOp& op : outstanding) {
    const auto known = first_seen_.find(op.number);
    Duration since = known == first_seen_.end() ? clock_ : known->second;
    seen[op.number] = since;
    since = std::max(since, way_of(op.op.kind) == Way::disk ? disk_moved_at_ : other_moved_at_);
    // The oldest overdue operation counts, unless this rank is inside the wait of a younger one, which is
    // then what stops it.
    if (clock_ - since > options_.limit && (!overdue || (op.waiting && !overdue->waiting))) overdue = op;
  }
  first_seen_ = std::move(seen);
  return overdue;
}

// A disk carries out transfers one after another: one that waits for its turn is no hang while others end.
void Watchdog::note_transfers(const std::vector<OutstandingOp>& outstanding) {
  std::set<std::int64_t> transfers;
  for (const OutstandingOp& op : outstanding)
    if (way_of(op.op.kind) == Way::disk) transfers.insert(op.number);
  if (!std::ranges::includes(transfers, transfers_)) disk_moved_at_ = clock_;
  transfers_ = std::move(transfers);
}

bool Watchdog::step_stands_still(std::chrono::milliseconds limit) {
  const std::pair<std::int64_t, std::int64_t> moves{moves_, board_.read(rank_).operations};
  if (moves != last_moves_ || !in_step_) {
    last_moves_ = moves;
    moved_at_ = clock_;
  }
  return limit > 0ms && clock_ - std::max(moved_at_, disk_moved_at_) > limit;
}

// The rank that this one waits for may only be slow: nothing hangs while any rank computes or writes.
void Watchdog::look_at_others() {
  std::vector<std::int64_t> moves;
  somebody_is_gone_ = false;
  for (int r = 0; r < to_int(board_.world()); ++r) {
    const RankProgress p = board_.read(Rank{r});
    moves.push_back(Rank{r} == rank_ ? 0 : p.moves);
    if (p.pid != 0 && !p.left && !process_alive(p.pid)) somebody_is_gone_ = true;
  }
  if (moves != moves_of_others_) other_moved_at_ = clock_;
  moves_of_others_ = std::move(moves);
}

bool Watchdog::leaves_it_to_the_run(int signal) {
  if (signal != SIGTERM || end_now_) return false;
  if (!asked_ && (somebody_is_gone_ || !options_.ends_by_itself())) return false;
  return asked_ = true;
}

void Watchdog::end_now() {
  end_now_ = true;
  while (true) std::this_thread::sleep_for(1h);
}

void Watchdog::on_terminate(int signal) {
  for (int attempt = 0; attempt < 5 && !somebody_is_gone_; ++attempt) {
    std::this_thread::sleep_for(20ms);
    look_at_others();
  }
  if (somebody_is_gone_)
    return expire(describe_hang(board_, rank_, std::nullopt, options_.limit, stale_after(options_.limit)));
  // No rank is lost, since all were asked to stop. The others learn of it up to one interval later; until
  // then they must neither report this rank nor make Open MPI complain about it. So all ranks fall silent
  // first, and only then end.
  // first, and only then end.
  expired_ = true;
  board_.leave(rank_);
  options_.interrupted(signal);
  (void)std::freopen("/dev/null", "w", stderr);
  if (to_int(board_.world()) > 1) std::this_thread::sleep_for(3 * kLongestInterval);
  options_.exit(128 + signal);
}

// Nobody ends a process before the message is printed: mpirun would end the printing process too.
void Watchdog::expire(const std::string& message) {
  expired_ = true;
  if (board_.claim()) {
    options_.print(message);
    board_.set_reported(kLostRank);
  } else {
    for (int k = 0; k < 100 && !board_.reported(); ++k) std::this_thread::sleep_for(10ms);
  }
  std::thread aborting(options_.abort);
  std::this_thread::sleep_for(options_.last_words);
  options_.exit(kLostRank);
  aborting.join();
}

}  // namespace sc
