// What a rank has communicated: how often, when, and what has not ended yet, which a watchdog asks for. No
// torch.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "common/watch/comm_op.h"
#include "common/watch/gpu_moment.h"
#include "common/watch/op_span.h"
#include "common/watch/progress_board.h"

namespace sc {

/// An operation that has not ended as far as this rank knows.
struct OutstandingOp {
  std::int64_t number = 0;
  Operation op;
  Meeting with;
  bool waiting = false;  // somebody is inside its wait or is issuing it, or a GPU waits for it
  Phase phase{};
  std::int64_t step = 0;
  bool replayed = false;  // a graph was launched, and this is the last operation of those that it holds
  bool operator==(const OutstandingOp&) const = default;
};

struct RecordOptions {
  std::int64_t keep_steps = 64;    // recorded() knows at least that many of the last steps of each phase
  std::int64_t trace_steps = 0;    // spans are kept of steps below this, of every phase
  ProgressBoard* board = nullptr;  // told of every operation; outlives the record
  int last_unit = kNoUnit;         // of the model, for the board's words
};

/// One record a rank, shared by its world communicator and all splits. Thread-safe.
class CommRecord {
 public:
  using Clock = OpSpan::Clock;
  static constexpr std::size_t kMostUnread = 1 << 14;
  CommRecord(Rank world_rank, const RecordOptions& options);

  void set_phase(Phase phase);
  void set_step(std::int64_t step);
  /// What the strategy has come to, for the board.
  void set_doing(std::string_view doing);

  /// What was issued in that step: what plans are checked against. Empty if there was nothing.
  ///   Errors  std::out_of_range for a step that is not kept any more.
  [[nodiscard]] CommPlan recorded(Phase phase, std::int64_t step) const;
  /// Inside waits since the last reset; of several threads: the sum. Of waits that a GPU measures: what
  /// read_gpu_times() has found.
  [[nodiscard]] std::chrono::nanoseconds waited() const;
  void reset_waited();
  /// Takes over what the GPU has measured since, in waits and in spans: to be called where the host has
  /// waited for the GPU; it never blocks. What it has not come past yet is left for the next call, but at
  /// most kMostUnread waits, and of a graph only those of its last launch.
  void read_gpu_times();
  /// Spans that a GPU measures are laid on the host's clock by this; until then they hold the host's times.
  void set_gpu_origin(GpuOrigin origin);
  [[nodiscard]] std::vector<OpSpan> spans() const;
  /// Oldest first. Never blocks on a transport.
  [[nodiscard]] std::vector<OutstandingOp> outstanding();
  [[nodiscard]] std::int64_t operations() const;

  // For the communicator.
  /// An operation is being issued: until issued() or withdrawn() the rank counts as waiting, since a backend
  /// may have to meet the others first. Returns the operation's number.
  ///   of_step  the training step it counts for, where a thread beside the steps issues it; empty: the
  ///            present one.
  std::int64_t issuing(const Operation& op, Bytes sent, const Meeting& with, Clock::time_point at,
                       std::optional<std::int64_t> of_step = {});
  /// `ended` is asked by outstanding() under the record's lock until wait_ended() or forget().
  void issued(std::int64_t number, std::function<bool()> ended);
  /// It was refused, and counts nowhere.
  void withdrawn(std::int64_t number);
  void wait_began(std::int64_t number);
  /// `ended`: TicketState::ended_later(). Until it is true the operation is outstanding and the rank waits,
  /// although its host has gone on: nobody notices otherwise that a GPU hangs. `times`:
  /// TicketState::gpu_times().
  void wait_ended(std::int64_t number, std::optional<Clock::time_point> op_ended,
                  std::function<bool()> ended = nullptr, const GpuTimes& times = {});
  void forget(std::int64_t number);
  /// A captured graph that holds operations was launched: counts as the last operation again, outstanding
  /// until `ended`; the waits of all captured operations are read again. Does nothing before the first
  /// operation, and adds nothing to recorded().
  void replayed(std::function<bool()> ended);
  /// That graph is gone.
  void forget_captured();

 private:
  /// Of one phase.
  struct Steps {
    std::map<std::int64_t, CommPlan> plans;
    std::int64_t forgotten_before = std::numeric_limits<std::int64_t>::min();  // steps that are not kept
  };
  using Place = std::optional<std::size_t>;  // among the spans that are kept
  struct Pending {
    OutstandingOp op;
    OpSpan span = {};  // as issued
    Place place = {};
    std::function<bool()> ended = [] { return false; };
    Clock::time_point wait_began = {};
  };
  /// A wait that a GPU measures.
  struct Timed {
    GpuTimes times;
    Place place;
  };
  struct Captured {
    GpuTimes times;
    OpSpan span;
  };
  [[nodiscard]] Steps& steps(Phase phase) { return phases_[static_cast<std::size_t>(phase)]; }
  Place keep(const OpSpan& span);
  void measure(const Pending& pending, const GpuTimes& times);
  [[nodiscard]] bool read(const Timed& timed);
  void read_all();
  void forget_launches();
  void set_waiting(Pending& pending, bool waiting);
  void run_on(std::int64_t number, Pending& pending, std::function<bool()> ended);
  /// Forgets operations that a GPU has ended since; stops at the first that it has not, or looks at all.
  void sweep(bool all);

  const Rank rank_;
  ProgressBoard* const board_;
  mutable std::mutex mutex_;
  Phase phase_ = Phase::setup;
  std::int64_t step_ = 0;
  std::int64_t operations_ = 0;
  const std::int64_t keep_steps_, trace_steps_;
  std::array<Steps, 4> phases_;
  std::chrono::nanoseconds waited_{0};
  std::vector<OpSpan> spans_;
  std::set<std::size_t> unreal_;    // of them, those of operations that were captured, not run
  std::deque<Timed> timed_;         // not read yet
  std::vector<Captured> captured_;  // in the order of their waits
  std::optional<GpuOrigin> origin_;
  std::map<std::int64_t, Pending> pending_;  // by number
  std::deque<std::int64_t> running_;         // of them, those that were waited for
  std::optional<OutstandingOp> last_;        // the last one issued
};

}  // namespace sc
