#include "common/records/trace.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "common/base/text.h"
#include "common/records/json.h"

namespace sc {
namespace {

double end_of(const TraceSpan& span) { return span.begin_us + span.duration_us; }

// Whether a row of the trace can show another span: it lies inside the innermost open one, or after it.
//   open  the ends of the open spans, the innermost last
bool takes(std::vector<double>& open, const TraceSpan& span, bool may_nest) {
  while (!open.empty() && open.back() <= span.begin_us) open.pop_back();
  if (!open.empty() && (!may_nest || end_of(span) > open.back())) return false;
  open.push_back(end_of(span));
  return true;
}

struct Placed {
  const TraceSpan* span;
  std::int64_t row;  // of its lane, 0-based
};

// Places the spans of one lane, in order of begin (an outer span before the inner ones), each in the first
// row that can show it.
std::vector<Placed> place(const std::vector<TraceSpan>& spans, Lane lane) {
  std::vector<Placed> placed;
  for (const TraceSpan& span : spans)
    if (span.lane == lane) placed.push_back({&span, 0});
  std::ranges::stable_sort(placed, {},
                           [](const Placed& p) { return std::pair(p.span->begin_us, -p.span->duration_us); });
  // Operations are shown side by side, even if one begins and ends within another.
  const bool may_nest = lane != Lane::communication;
  std::vector<std::vector<double>> rows(placed.size());  // at most as many as spans
  for (Placed& p : placed)
    while (!takes(rows[static_cast<std::size_t>(p.row)], *p.span, may_nest)) ++p.row;
  return placed;
}

Json metadata(const char* name, std::int64_t pid, std::int64_t tid, const Json& args) {
  return {{"name", name}, {"ph", "M"}, {"pid", pid}, {"tid", tid}, {"args", args}};
}

Json event_of(const TraceSpan& span, std::int64_t pid, std::int64_t tid) {
  Json json = {{"name", span.name},       {"cat", span.category}, {"ph", "X"}, {"ts", span.begin_us},
               {"dur", span.duration_us}, {"pid", pid},           {"tid", tid}};
  for (const auto& [key, value] : span.args) json["args"][key] = value;
  return json;
}

}  // namespace

std::vector<Stretch> waits_for(std::span<const OpSpan> operations) {
  std::vector<Stretch> waits;
  for (const OpSpan& op : operations)
    if (op.wait_began && op.wait_ended) waits.emplace_back(*op.wait_began, *op.wait_ended);
  std::ranges::sort(waits);
  return waits;
}

std::vector<Stretch> without(const Stretch& whole, std::span<const Stretch> holes) {
  std::vector<Stretch> left;
  auto at = whole.first;
  for (const auto& [begin, end] : holes) {
    if (end <= at || begin >= whole.second) continue;
    if (begin > at) left.emplace_back(at, begin);
    at = end;
  }
  if (at < whole.second) left.emplace_back(at, whole.second);
  return left;
}

Trace::Trace(Rank rank, Clock::time_point origin, std::size_t limit)
    : rank_(rank), origin_(origin), limit_(limit) {}

double Trace::us(Clock::time_point at) const {
  return std::chrono::duration<double, std::micro>(at - origin_).count();
}

void Trace::add(TraceSpan span) {
  if (spans_.size() < limit_) {
    spans_.push_back(std::move(span));
  } else {
    ++left_out_;
  }
}

void Trace::add(Lane lane, std::string name, Clock::time_point begin, Clock::time_point end) {
  add({lane, std::move(name), std::string(name_of(lane)), us(begin), us(end) - us(begin), {}});
}

void Trace::add_operation(const OpSpan& op, const std::string& name) {
  const std::optional<Clock::time_point> end = op.ended ? op.ended : op.wait_ended;
  if (!end) return;
  const Clock::time_point begin = op.began.value_or(op.issued);
  constexpr Lane kLanes[] = {Lane::communication, Lane::copies, Lane::disk};  // indexed by Way
  add({kLanes[static_cast<int>(way_of(op.op.kind))],
       name,
       std::string(name_of(op.phase)),
       us(begin),
       us(*end) - us(begin),
       {{"number", human_count(op.number)},
        {"step", human_count(op.step)},
        {"bytes of the tensor", human_count(bytes_of(op.op.elements, op.op.dtype).value())},
        {"bytes this rank sends", human_count(op.sent.value())}}});
}

void Trace::add_run(std::span<const Step> steps, std::span<const OpSpan> operations,
                    std::span<const Timeline::Span> marks, int last_unit) {
  const std::vector<Stretch> waits = waits_for(operations);
  for (const OpSpan& op : operations) {
    const std::string name = describe(op.op, last_unit);
    add_operation(op, name);
    if (!op.wait_began || !op.wait_ended) continue;
    add(Lane::wait, fmt::format("wait for {}", name), *op.wait_began, *op.wait_ended);
  }
  for (const Step& step : steps) {
    add(Lane::compute, fmt::format("step {}", step.step), step.begin, step.end);
    const auto its_pass = [&](const Timeline::Span& mark) {
      return mark.name.empty() && !mark.on_host && mark.step == step.step;
    };
    if (std::ranges::any_of(marks, its_pass)) continue;
    for (const auto& [begin, end] : without(step.on_gpu.value_or(Stretch(step.begin, step.end)), waits))
      add(Lane::compute, "compute", begin, end);
  }
  add_marks(marks, last_unit);
}

void Trace::add_marks(std::span<const Timeline::Span> marks, int last_unit) {
  const bool several = std::ranges::any_of(
      marks, [](const Timeline::Span& mark) { return mark.computed && mark.computed->micro_batch > 0; });
  for (const Timeline::Span& mark : marks) {
    const bool named = !mark.name.empty();
    const std::string name = named ? mark.name : describe(*mark.computed, last_unit, several);
    add(named || mark.on_host ? Lane::marks : Lane::compute, mark.on_host ? name + ", on the host" : name,
        mark.begin, mark.end);
  }
}

std::string Trace::serialise() const {
  const std::int64_t pid = to_int(rank_);
  std::string text;
  const auto put = [&](const Json& json) { text += line_of(json) + "\n"; };
  std::string name = fmt::format("rank {}", pid);
  if (left_out_ > 0) name += fmt::format(" ({} spans left out)", human_count(left_out_));
  put(metadata("process_name", pid, 0, {{"name", name}}));
  put(metadata("process_sort_index", pid, 0, {{"sort_index", pid}}));
  std::int64_t first_row = 0;
  for (const Lane lane :
       {Lane::compute, Lane::wait, Lane::communication, Lane::copies, Lane::disk, Lane::marks}) {
    const std::vector<Placed> placed = place(spans_, lane);
    if (placed.empty() && lane > Lane::communication) continue;
    std::int64_t rows = 1;  // the first three lanes are shown even if empty
    for (const Placed& p : placed) rows = std::max(rows, p.row + 1);
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::string label =
          row == 0 ? std::string(name_of(lane)) : fmt::format("{} {}", name_of(lane), row + 1);
      put(metadata("thread_name", pid, first_row + row, {{"name", label}}));
      put(metadata("thread_sort_index", pid, first_row + row, {{"sort_index", first_row + row}}));
    }
    for (const Placed& p : placed) put(event_of(*p.span, pid, first_row + p.row));
    first_row += rows;
  }
  return text;
}

std::string merge_traces(std::span<const std::string> ranks) {
  std::string text = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [";
  const char* separator = "\n";
  for (std::string_view rank : ranks) {
    while (!rank.empty()) {
      const std::size_t end = rank.find('\n');
      text.append(separator).append(rank.substr(0, end));
      rank.remove_prefix(end == std::string_view::npos ? rank.size() : end + 1);
      separator = ",\n";
    }
  }
  return text + "\n]}\n";
}

}  // namespace sc
