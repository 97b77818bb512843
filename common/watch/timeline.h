// Named spans of what a strategy does: "F3" from here to there, for the trace, and of the last steps where a
// strategy asks for them. Nothing is kept unless asked. No torch.
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

/// One rank's, used by one thread.
class Timeline {
 public:
  using Clock = std::chrono::steady_clock;
  struct Span {
    std::string name;  // empty: what was computed says it
    std::optional<Computed> computed;
    std::int64_t step = 0;
    Clock::time_point begin, end;
    bool on_host = false;  // by another thread than the one that computes
  };
  /// Of what a rank holds of the parameters, where no operation says it.
  struct Change {
    int unit = kNoUnit;                // whose whole parameters are given up
    std::optional<int> versions = {};  // else: so many of all units are there
    std::int64_t step = 0;
    Clock::time_point at = {};
  };
  struct EndSpan {
    std::size_t index = 0;
    void operator()(Timeline* timeline) const { timeline->end(index); }
  };
  /// Ends its span when it goes. Null: nobody asked.
  using Mark = std::unique_ptr<Timeline, EndSpan>;

  /// The GPU's own times instead of the host's: `now` is gpu_moment.
  struct GpuClock {
    GpuOrigin origin;
    std::function<GpuMomentPtr()> now;
  };
  /// Who wants a step's spans.
  struct Wanted {
    bool drawn = false;   // the trace
    bool marked = false;  // the page, and changes too
  };
  /// From here on spans are of that step.
  void begin_step(std::int64_t step, Wanted wanted, std::optional<GpuClock> gpu = {});
  /// From here on none are kept.
  void end_step() { on_ = false; }
  /// Nothing of the marked steps goes on any more: from here on marked() and changes() know them.
  ///   replayed  a step: the GPU has come past a graph in which marked spans were captured, so they are that
  ///             step's, too
  void settle(std::optional<std::int64_t> replayed = {});
  [[nodiscard]] const std::vector<Span>& marked() const { return marked_; }
  [[nodiscard]] const std::vector<Change>& changes() const { return changes_; }
  /// Spans of the last `steps` steps are kept as well, whether they are drawn or not.
  void keep_recent(std::int64_t steps) { recent_steps_ = steps; }
  /// Of the micro-batch that has begun last, but for the norm and updates.
  [[nodiscard]] Mark mark(Pass pass, int unit = kNoUnit);
  /// Of a micro-batch that the name says, too: an action of a pipeline. unit: the first one of its part.
  [[nodiscard]] Mark mark(std::string_view name, const Computed& computed = {});
  /// Its whole parameters may be written over from here on. Of no unit (-1): nothing happens.
  void gives_up_params(int unit);
  /// So many versions of all parameters are there from here on.
  void has_versions(int versions);
  /// The step's next one.
  void begin_micro_batch() {
    if (on_) ++micro_batch_;
  }
  /// What another thread of the host did, by its own clock.
  void add(const Computed& computed, Clock::time_point begin, Clock::time_point end,
           std::string_view name = "");
  /// In the order of their beginnings. Those that a GPU has not come past are left out.
  [[nodiscard]] std::vector<Span> drawn() const;
  /// The same, of the last steps. What a GPU's graph replays counts as the step that was captured, and has
  /// the times of the last replay.
  [[nodiscard]] std::vector<Span> recent() const;

  /// What the rank comes to next, for whoever has to say where it hangs. Every mark comes to something, too,
  /// which has no name of its own (empty).
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
