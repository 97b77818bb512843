// Named spans of what a strategy does, e.g. "F3", for the trace, and of the last steps for strategies that
// ask for them. Nothing is kept unless asked for. No torch.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/watch/gpu_moment.h"
#include "common/watch/pass.h"

namespace sc {

/// The timeline of one rank, used by one thread.
class Timeline {
 public:
  using Clock = std::chrono::steady_clock;
  struct Span {
    std::string name;  // empty: described by what was computed
    std::optional<Computed> computed;
    std::int64_t step = 0;
    Clock::time_point begin, end;
    bool on_host = false;  // computed by another thread than the steps' thread
  };
  /// A change of what a rank holds of the parameters that no operation implies.
  struct Change {
    int unit = kNoUnit;                // the unit whose whole parameters are released
    std::optional<int> versions = {};  // otherwise: the number of versions of all units
    std::int64_t step = 0;
    Clock::time_point at = {};
  };
  struct EndSpan {
    std::size_t index = 0;
    void operator()(Timeline* timeline) const { timeline->end(index); }
  };
  /// A running span, which ends when this is destroyed. Null: nothing is recorded.
  using Mark = std::unique_ptr<Timeline, EndSpan>;

  /// The GPU's clock, by which spans are timed instead of the host's; `now` is gpu_moment.
  struct GpuClock {
    GpuOrigin origin;
    std::function<GpuMomentPtr()> now;
  };
  /// Who needs the spans of a step.
  struct Wanted {
    bool drawn = false;   // by the trace
    bool marked = false;  // by the page, which needs changes too
  };
  /// Says that spans from here on belong to a step.
  void begin_step(std::int64_t step, Wanted wanted, std::optional<GpuClock> gpu = {});
  void end_step() { on_ = false; }
  /// Says that the marked steps have ended on all threads and the GPU: marked() and changes() are complete.
  ///   replayed  the step of a graph replay, by which the GPU measured spans that were captured; they count
  ///             as that step's
  void settle(std::optional<std::int64_t> replayed = {});
  [[nodiscard]] const std::vector<Span>& marked() const { return marked_; }
  [[nodiscard]] const std::vector<Change>& changes() const { return changes_; }
  /// Also keeps the spans of the last `steps` steps, whether they are drawn or not.
  void keep_recent(std::int64_t steps) { recent_steps_ = steps; }
  /// Begins a span of the current micro-batch; the norm and updates belong to none.
  [[nodiscard]] Mark mark(Pass pass, int unit = kNoUnit);
  /// Begins a span of the micro-batch in the name: an action of a pipeline. computed.unit is the first unit
  /// of its part.
  [[nodiscard]] Mark mark(std::string_view name, const Computed& computed = {});
  /// Says that the unit's whole parameters may be overwritten from here on. A `unit` of -1 has no effect.
  void gives_up_params(int unit);
  /// Says how many versions of all parameters exist from here on.
  void has_versions(int versions);
  void begin_micro_batch() {
    if (on_) ++micro_batch_;
  }
  /// Adds a span of another host thread, measured by its own clock.
  void add(const Computed& computed, Clock::time_point begin, Clock::time_point end,
           std::string_view name = "");
  /// The spans to be drawn, in the order they were noted, without those whose end the GPU has not reached.
  [[nodiscard]] std::vector<Span> drawn() const;
  /// The spans of the last steps. A graph's replays count as the step that was captured, with the times of
  /// the last replay.
  [[nodiscard]] std::vector<Span> recent() const;

  /// Announces what the rank does next, for messages about hangs. Every mark announces itself too, with an
  /// empty text if it has no name.
  void comes_to(std::string_view what) const {
    if (listener_) listener_(what);
  }
  void on_coming_to(std::function<void(std::string_view)> listener) { listener_ = std::move(listener); }

 private:
  struct Noted {
    Span span;
    Wanted wanted;
    std::optional<GpuClock> gpu;
    GpuMomentPtr began, ended;
    bool settled = false;
  };
  struct NotedChange {
    Change change;
    std::optional<GpuClock> gpu;
    GpuMomentPtr moment;
    bool settled = false;
  };
  Noted& note();
  void note(const Change& change);
  void end(std::size_t index);
  static std::optional<Span> times_of(const Noted& noted);

  bool on_ = false;
  Wanted wanted_;
  int micro_batch_ = -1;
  std::int64_t step_ = 0, recent_steps_ = 0;
  std::function<void(std::string_view)> listener_;
  std::optional<GpuClock> gpu_;
  std::vector<Noted> noted_;
  std::vector<NotedChange> noted_changes_;
  std::vector<Span> marked_;
  std::vector<Change> changes_;
};

}  // namespace sc
