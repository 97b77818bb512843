// Named spans of what a strategy does, for the trace: "F3" from here to there. Nothing is kept unless asked.
// No torch.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/watch/gpu_moment.h"

namespace sc {

/// One rank's, used by one thread.
class Timeline {
 public:
  using Clock = std::chrono::steady_clock;
  struct Span {
    std::string name;
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
  /// From here on spans are kept, of that step.
  void begin_step(std::int64_t step, std::optional<GpuClock> gpu = {});
  /// From here on none are.
  void end_step() { on_ = false; }
  [[nodiscard]] Mark mark(std::string_view name);
  /// In the order of their beginnings. Those that a GPU has not come past are left out.
  [[nodiscard]] std::vector<Span> spans() const;

 private:
  struct Noted {
    Span span;
    std::optional<GpuClock> gpu;
    GpuMomentPtr began, ended;
  };
  void end(std::size_t index);

  bool on_ = false;
  std::int64_t step_ = 0;
  std::optional<GpuClock> gpu_;
  std::vector<Noted> noted_;
};

}  // namespace sc
