// When a rank's operations ran, and how long they were waited for. No torch.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "common/watch/comm_op.h"
#include "common/watch/gpu_moment.h"

namespace sc {

/// One operation, for the Chrome trace.
struct OpSpan {
  using Clock = std::chrono::steady_clock;
  std::int64_t number = 0;  // 1, 2, ... on this rank
  Phase phase{};
  std::int64_t step = 0;
  Operation op;
  Bytes sent;                // by formula (wire_bytes)
  std::optional<Rank> peer;  // of a send or receive, in the world
  Clock::time_point issued;
  std::optional<Clock::time_point> began, ended;  // where the transport knows them
  std::optional<Clock::time_point> wait_began, wait_ended;
};

/// Not thread-safe: a CommRecord locks it.
class CommTimes {
 public:
  using Clock = OpSpan::Clock;
  static constexpr std::size_t kMostUnread = 1 << 14;

  /// Spans are kept of steps below trace_steps, of every phase.
  explicit CommTimes(std::int64_t trace_steps) : trace_steps_(trace_steps) {}

  /// An operation that has been issued and is not waited for yet.
  struct Op {
    OpSpan span;                       // as issued
    std::optional<std::size_t> place;  // among the spans that are kept
    Clock::time_point wait_began;
  };
  [[nodiscard]] Op issued(const OpSpan& span) { return {span, keep(span), {}}; }
  /// It was refused.
  void take_back(const Op& op);
  /// times: of a wait that a GPU measures; empty: the host's clock does.
  void wait_ended(const Op& op, std::optional<Clock::time_point> op_ended, const GpuTimes& times);
  /// A captured graph was launched, in that step: its waits will be measured again.
  void replayed(Phase phase, std::int64_t step);

  /// The graph is gone, and what it held happens no more.
  void forget_captured();

  /// Inside waits since the last reset; of several threads: the sum. Of waits that a GPU measures: what
  /// read_gpu_times() has found.
  [[nodiscard]] std::chrono::nanoseconds waited() const { return waited_; }
  void reset_waited();
  /// Takes over what the GPU has measured since, in waits and in spans. What it has not come past yet is left
  /// for the next call, but at most kMostUnread waits, and of a graph only those of its last launch.
  void read_gpu_times();
  /// Spans that a GPU measures are laid on the host's clock by this; until then they hold the host's times.
  void set_gpu_origin(GpuOrigin origin) { origin_ = std::move(origin); }
  [[nodiscard]] std::vector<OpSpan> spans() const;

 private:
  /// A wait that a GPU measures.
  struct Timed {
    GpuTimes times;
    std::optional<std::size_t> place;
  };
  struct Captured {
    GpuTimes times;
    OpSpan span;
  };
  std::optional<std::size_t> keep(const OpSpan& span);
  void take(const Op& op, const GpuTimes& times);
  [[nodiscard]] bool read(const Timed& timed);

  const std::int64_t trace_steps_;
  std::chrono::nanoseconds waited_{0};
  std::vector<OpSpan> spans_;
  std::set<std::size_t> unreal_;    // of them, those of operations that were captured, not run
  std::deque<Timed> timed_;         // not read yet
  std::vector<Captured> captured_;  // in the order of their waits
  std::optional<GpuOrigin> origin_;
};

}  // namespace sc
