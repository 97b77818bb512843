// Named spans of what a strategy does: "F3" from here to there, for the trace, and of the last steps where a
// strategy asks for them. Nothing is kept unless asked. No torch.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
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
  };
  /// Ends its span when it goes.
  class Mark {
   public:
    Mark(Mark&& other) noexcept : timeline_(other.timeline_), index_(other.index_) {
      other.timeline_ = nullptr;
    }
    Mark& operator=(Mark&&) = delete;
    ~Mark() {
      if (timeline_ != nullptr) timeline_->end(index_);
    }

   private:
    friend class Timeline;
    Mark(Timeline* timeline, std::size_t index) : timeline_(timeline), index_(index) {}
    Timeline* timeline_;  // null: nobody asked
    std::size_t index_;
  };

  /// The GPU's own times instead of the host's: `now` is gpu_moment.
  struct GpuClock {
    GpuOrigin origin;
    std::function<GpuMomentPtr()> now;
  };
  /// From here on spans are of that step. drawn: the trace wants them.
  void begin_step(std::int64_t step, bool drawn, std::optional<GpuClock> gpu = {});
  /// From here on none are kept.
  void end_step() { on_ = false; }
  /// Spans of the last `steps` steps are kept as well, whether they are drawn or not.
  void keep_recent(std::int64_t steps) { recent_steps_ = steps; }
  [[nodiscard]] bool keeps_recent() const { return recent_steps_ > 0; }
  [[nodiscard]] Mark mark(std::string_view name);
  /// Of the micro-batch that has begun last, but for the norm and updates.
  [[nodiscard]] Mark mark(Pass pass, int unit = kNoUnit);
  /// The step's next one.
  void begin_micro_batch() {
    if (on_) ++micro_batch_;
  }
  /// What another thread of the host did, by its own clock.
  void add(std::string_view name, Clock::time_point begin, Clock::time_point end);
  /// In the order of their beginnings. Those that a GPU has not come past are left out.
  [[nodiscard]] std::vector<Span> drawn() const;
  /// The same, of the last steps. What a GPU's graph replays counts as the step that was captured, and has the
  /// times of the last replay.
  [[nodiscard]] std::vector<Span> recent() const;

  /// What the rank comes to next, for whoever has to say where it hangs.
  void comes_to(std::string_view what) const {
    if (listener_) listener_(what);
  }
  void on_coming_to(std::function<void(std::string_view)> listener) { listener_ = std::move(listener); }

 private:
  struct Noted {
    Span span;
    bool drawn = false;
    std::optional<GpuClock> gpu;
    GpuMomentPtr began, ended;
  };
  Noted& note();
  void end(std::size_t index);
  static std::optional<Span> times_of(const Noted& noted);

  bool on_ = false, drawn_ = false;
  int micro_batch_ = -1;
  std::int64_t step_ = 0, recent_steps_ = 0;
  std::function<void(std::string_view)> listener_;
  std::optional<GpuClock> gpu_;
  std::vector<Noted> noted_;
};

}  // namespace sc
