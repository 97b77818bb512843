// What every rank did when, for chrome://tracing and ui.perfetto.dev: all ranks in one trace.json. No torch.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/types.h"
#include "common/watch/op_span.h"
#include "common/watch/timeline.h"

namespace sc {

/// The rows of a rank; copies, disk and marks only if there are any. Spans that overlap, which one row cannot
/// show, take further rows.
enum class Lane : std::uint8_t { compute, wait, communication, copies, disk, marks };
constexpr std::string_view name_of(Lane lane) {
  constexpr std::string_view kNames[] = {"compute", "wait", "communication", "copies", "disk", "marks"};
  return kNames[static_cast<int>(lane)];
}

/// A half-open interval on the host's clock.
using Stretch = std::pair<OpSpan::Clock::time_point, OpSpan::Clock::time_point>;
/// The times in which operations were waited for, sorted.
std::vector<Stretch> waits_for(std::span<const OpSpan> operations);
/// The parts of `whole` outside `holes`, which are sorted.
std::vector<Stretch> without(const Stretch& whole, std::span<const Stretch> holes);

struct TraceSpan {
  Lane lane{};
  std::string name, category;
  double begin_us = 0, duration_us = 0;                   // from the trace's origin
  std::vector<std::pair<std::string, std::string>> args;  // shown when the span is clicked
};

/// The spans of one rank, at most `limit` of them: later ones are counted and left out.
class Trace {
 public:
  using Clock = OpSpan::Clock;
  /// `origin` must be the same moment on all ranks: any moment if they share a host (whose processes share
  /// steady_clock), otherwise the end of a barrier.
  Trace(Rank rank, Clock::time_point origin, std::size_t limit = 200'000);

  void add(TraceSpan span);
  void add(Lane lane, std::string name, Clock::time_point begin, Clock::time_point end);

  /// A step's times, as run_lesson measured them.
  struct Step {
    std::int64_t step = 0;
    Clock::time_point begin, end;
    std::optional<Stretch> on_gpu = {};  // from its first to its last work
  };
  /// Adds a whole run: operations from issue (on GPUs: from their begin) to end (or to the end of their wait,
  /// if the transport does not know better), waits, and the computation: the passes in `marks`, or for a step
  /// without any the time that waits leave (of its GPU time, if known). Operations without an end are left
  /// out. `last_unit` is the model's, for names.
  void add_run(std::span<const Step> steps, std::span<const OpSpan> operations,
               std::span<const Timeline::Span> marks = {}, int last_unit = kNoUnit);

  [[nodiscard]] const std::vector<TraceSpan>& spans() const { return spans_; }
  [[nodiscard]] std::int64_t left_out() const { return left_out_; }
  [[nodiscard]] std::string serialise() const;

 private:
  [[nodiscard]] double us(Clock::time_point at) const;
  void add_marks(std::span<const Timeline::Span> marks, int last_unit);
  void add_operation(const OpSpan& op, const std::string& name);

  Rank rank_;
  Clock::time_point origin_;
  std::size_t limit_;
  std::int64_t left_out_ = 0;
  std::vector<TraceSpan> spans_;
};

/// The text of trace.json from every rank's serialise(), in any order.
///   Format  Trace Event Format, JSON object form: one complete event ("ph": "X") per span with pid = rank
///           and tid = row, ordered by begin within a row; metadata events name ranks and rows. In a row
///           spans are nested or disjoint.
std::string merge_traces(std::span<const std::string> ranks);

}  // namespace sc
