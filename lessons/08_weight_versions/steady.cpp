#include "steady.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <sstream>

#include "common/comm/gather_text.h"
#include "pipedream/cost_files.h"

namespace sc {
namespace {

using pipedream::Action;
using pipedream::Kind;
using pipedream::Span;

constexpr int kSimulated =
    pipedream::Windows::kSteady + 4;  // windows; the one before the last two is in the middle
constexpr std::int64_t kFirst = pipedream::Windows::kSteady + 1;

bool takes_time(Kind kind) { return pipedream::is_compute(kind) || kind == Kind::step; }

/// What a stage computed in one window, in order.
struct Done {
  std::vector<std::string> names;
  std::vector<Kind> kinds;
  std::vector<Span> spans;
  [[nodiscard]] double busy() const {
    return std::accumulate(spans.begin(), spans.end(), 0.0,
                           [](double sum, const Span& s) { return sum + s.end - s.start; });
  }
};
/// By stage.
using Window = std::vector<Done>;

Done actions_of(const Endless& endless, int stage, std::int64_t t) {
  Done done;
  for (const Action& action : endless.windows.window(stage, t)) {
    if (!takes_time(action.kind)) continue;
    done.names.push_back(to_text(action)), done.kinds.push_back(action.kind);
  }
  return done;
}

// Windows kFirst and the one behind it.
std::pair<Window, Window> simulated(const Endless& endless, const pipedream::Costs& costs) {
  const pipedream::Timeline timeline = simulate(endless.windows.whole(kSimulated), costs);
  std::pair<Window, Window> both;
  for (int stage = 0; stage < endless.share.schedule.stages; ++stage) {
    std::size_t at = 0;
    for (std::int64_t t = 0; t <= kFirst + 1; ++t) {
      Done done = actions_of(endless, stage, t);
      for (const Action& action : endless.windows.window(stage, t)) {
        const Span span = timeline.spans[static_cast<std::size_t>(stage)][at++];
        if (takes_time(action.kind)) done.spans.push_back(span);
      }
      if (t >= kFirst) (t == kFirst ? both.first : both.second).push_back(std::move(done));
    }
  }
  return both;
}

Steady steady_of(const Window& before, const Window& window) {
  Steady steady{.seconds = window.back().spans.back().end - before.back().spans.back().end};
  double busy = 0;
  for (const Done& done : window) busy += done.busy();
  steady.idle = std::max(0.0, 1 - busy / (steady.seconds * static_cast<double>(window.size())));
  return steady;
}

double seconds(Timeline::Clock::time_point at) {
  return std::chrono::duration<double>(at.time_since_epoch()).count();
}

// By windows, which is how the list counts.
std::string pack(const std::vector<Timeline::Span>& spans, std::int64_t since) {
  std::ostringstream out;
  out.precision(17);
  for (const Timeline::Span& s : spans)
    out << s.step - since << ' ' << s.name << ' ' << seconds(s.begin) << ' ' << seconds(s.end) << '\n';
  return out.str();
}

// Windows that every stage has left whole marks of, by number. A window of a stage is what its list says: anything else
// in the marks is messages.
std::map<std::int64_t, Window> whole_windows(const Endless& endless,
                                             const std::vector<std::string>& of_stages) {
  std::map<std::int64_t, Window> windows;
  for (std::size_t s = 0; s < of_stages.size(); ++s) {
    std::map<std::int64_t, std::map<std::string, Span>> steps;
    std::istringstream in(of_stages[s]);
    std::int64_t step = 0;
    std::string name;
    for (Span span; in >> step >> name >> span.start >> span.end;) steps[step][name] = span;
    for (const auto& [t, spans] : steps) {
      Done done = actions_of(endless, static_cast<int>(s), t);
      for (const std::string& action : done.names)
        if (const auto found = spans.find(action); found != spans.end()) done.spans.push_back(found->second);
      if (t >= pipedream::Windows::kSteady && done.spans.size() == done.names.size())
        windows[t].push_back(std::move(done));
    }
  }
  std::erase_if(windows, [&](const auto& entry) { return entry.second.size() != of_stages.size(); });
  return windows;
}

// What each stage takes on average for one micro-batch, and one update.
pipedream::Costs costs_of(const Window& window) {
  pipedream::Costs costs;
  costs.times.clear();
  for (const Done& done : window) {
    const auto mean = [&](Kind kind) {
      double sum = 0, count = 0;
      for (std::size_t i = 0; i < done.kinds.size(); ++i)
        if (done.kinds[i] == kind) sum += done.spans[i].end - done.spans[i].start, ++count;
      return count > 0 ? sum / count : 0;
    };
    const double backward = mean(Kind::backward);
    costs.times.push_back({mean(Kind::forward), backward / 2, backward / 2, mean(Kind::step)});
  }
  return costs;
}

void lay_over(const Window& window, double began, const Window& expected, double expected_began,
              Timetable& table) {
  table.ranks.resize(window.size());
  for (std::size_t s = 0; s < window.size(); ++s)
    for (std::size_t i = 0; i < window[s].spans.size(); ++i) {
      const Span &m = window[s].spans[i], &e = expected[s].spans[i];
      table.ranks[s].push_back({window[s].names[i], m.start - began, m.end - began, e.start - expected_began,
                                e.end - expected_began});
    }
}

double first_start(const Window& window) {
  double first = window.front().spans.front().start;
  for (const Done& done : window) first = std::min(first, done.spans.front().start);
  return first;
}

Timetable::Row row(const std::string& name, const Steady& steady, const std::string& from) {
  return {name, steady.seconds, steady.idle, from};
}

void add_times(const Endless& endless, const VersionOptions& options,
               const std::map<std::int64_t, Window>& windows, Timetable& table) {
  std::vector<std::pair<Steady, std::int64_t>> measured;
  for (const auto& [t, window] : windows)
    if (const auto before = windows.find(t - 1); before != windows.end())
      measured.emplace_back(steady_of(before->second, window), t);
  if (measured.empty()) return;
  std::ranges::sort(measured, {}, [](const auto& one) { return one.first.seconds; });
  const auto& [usual, t] = measured[(measured.size() - 1) / 2];
  const Window &before = windows.at(t - 1), &window = windows.at(t);
  const pipedream::Costs costs = costs_of(window);
  table.costs = to_json(costs);
  table.rows.push_back(
      row("measured", usual,
          "from the end of a step to that of the next, the median of " + std::to_string(measured.size())));
  table.rows.push_back(row("simulated", steady_by(endless, costs),
                           "from what the stages took in that step, messages taking no time"));
  if (endless.share.costs)
    table.rows.push_back(row("predicted", steady_by(endless, *endless.share.costs), "by " + options.costs));
  if (endless.share.pace) {
    pipedream::Costs paced = *endless.share.pace;
    paced.latency += options.link_ms / 1e3;
    table.rows.push_back(row("paced", steady_by(endless, paced), "by " + options.pace));
  }
  const auto [first, second] = simulated(endless, costs);
  lay_over(before, first_start(before), first, first_start(first), table);
  lay_over(window, first_start(before), second, first_start(first), table);
}

std::string pack(const VersionsRead& read) {
  std::ostringstream out;
  for (const auto& counts : {read.forward, read.backward}) {
    out << counts.size();
    for (const auto& [updates, microbatches] : counts) out << ' ' << updates << ' ' << microbatches;
    out << '\n';
  }
  return out.str();
}

VersionsRead unpack(const std::string& text) {
  VersionsRead read;
  std::istringstream in(text);
  for (auto* counts : {&read.forward, &read.backward}) {
    std::size_t size = 0;
    in >> size;
    for (std::int64_t updates = 0, n = 0; size > 0 && in >> updates >> n; --size) (*counts)[updates] = n;
  }
  return read;
}

}  // namespace

Steady steady_by(const Endless& endless, const pipedream::Costs& costs) {
  const auto [before, window] = simulated(endless, costs);
  return steady_of(before, window);
}

Timetable steady_timetable(const Endless& endless, const VersionOptions& options, const Timeline& timeline,
                           std::int64_t since, const VersionsRead& read, Communicator& comm) {
  Timetable table{.length = "period"};
  for (const std::string& text : gather_strings(comm, pack(read))) table.versions.push_back(unpack(text));
  const std::vector<std::string> of_stages = gather_strings(comm, pack(timeline.recent(), since));
  if (!of_stages.empty()) add_times(endless, options, whole_windows(endless, of_stages), table);
  return table;
}

}  // namespace sc
