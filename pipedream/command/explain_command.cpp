#include <cmath>

#include "pipedream/command/flags.h"
#include "pipedream/command/report.h"
#include "pipedream/command/text.h"
#include "pipedream/command/timeline_text.h"
#include "pipedream/error.h"

namespace sc::pipedream {

namespace {

constexpr int kMostExplained = 400;

std::string of_microbatch(const Action& action) {
  std::string text = " of microbatch " + std::to_string(action.microbatch);
  if (action.chunk > 0) text += " on chunk " + std::to_string(action.chunk);
  return text;
}

std::string verb(const Action& action) {
  switch (action.kind) {
    case Kind::forward:
      return "forward" + of_microbatch(action);
    case Kind::backward:
      return "backward" + of_microbatch(action);
    case Kind::backward_input:
      return "backward, input's half," + of_microbatch(action);
    default:
      return "backward, weights' half," + of_microbatch(action);
  }
}

// Tells what one stage does, tick by tick. Times only grow, so one pass over the list is enough.
class Teller {
 public:
  Teller(const Schedule& schedule, const Timeline& timeline, std::size_t stage)
      : schedule_(schedule),
        list_(schedule.actions[stage]),
        spans_(timeline.spans[stage]),
        tells_versions_(schedule.versions != VersionRule::flush) {}

  std::string tell(double begin, double end) {
    const double middle = (begin + end) / 2;
    std::string steps;
    for (; next_ < list_.size() && spans_end(next_) <= middle; ++next_) {
      const Action& action = list_[next_];
      if (spans_end(next_) < begin - 1e-9) continue;
      if (action.kind == Kind::step)
        steps += "step: its weights are now version " + std::to_string(action.version) + "; ";
      if (action.kind == Kind::stash) steps += "stashes version " + std::to_string(action.version) + "; ";
      if (action.kind == Kind::drop) steps += "drops version " + std::to_string(action.version) + "; ";
    }
    return steps + doing(begin, middle);
  }

 private:
  // The time until which an action occupies the stage; messages and bookkeeping do not.
  [[nodiscard]] double spans_end(std::size_t i) const {
    return is_message(list_[i].kind) ? 0 : spans_[i].end;
  }

  [[nodiscard]] std::string doing(double begin, double middle) const {
    std::size_t i = next_;
    while (i < list_.size() && !is_compute(list_[i].kind)) ++i;
    if (i == list_.size()) return "has finished";
    const Action& action = list_[i];
    if (spans_[i].start > middle) return waiting(action);
    if (spans_[i].start < begin - 1e-9) return verb(action) + " goes on";
    return verb(action) + (tells_versions_ ? " with version " + std::to_string(action.version) : "");
  }

  [[nodiscard]] std::string waiting(const Action& action) const {
    Message message;
    if (!needs_message(schedule_, action, message)) return "waits";
    const int from = (message.to + (message.gradient ? 1 : -1)) % schedule_.stages;
    return std::string("waits for the ") + (message.gradient ? "gradient" : "activation") +
           of_microbatch(action) + " from stage " + std::to_string(from);
  }

  const Schedule& schedule_;
  const std::vector<Action>& list_;
  const std::vector<Span>& spans_;
  const bool tells_versions_;
  std::size_t next_ = 0;
};

}  // namespace

int explain_command(const std::vector<std::string>& arguments, const Console& console) {
  Flags flags("explain",
              "tells a schedule in words: what every stage does at t0, t1, ... and what it waits for");
  flags.add_schedule();
  flags.add_costs();
  if (flags.parse(arguments, console)) return 0;
  GenerateOptions options;
  bool generated = false;
  const Schedule schedule = flags.schedule(options, generated);
  if (const int code = refuse_broken(schedule, console); code != 0) return code;
  const Timeline timeline = simulate(schedule, flags.costs());
  const double tick = tick_of(schedule, timeline);
  if (tick <= 0 || timeline.makespan / tick > kMostExplained) {
    throw InputError(ExitCode::usage, "pipedream explain",
                     "the times have no common tick, or there are more than " +
                         std::to_string(kMostExplained) + " of them",
                     "choose whole numbers for the times, and fewer microbatches");
  }
  std::vector<Teller> tellers;
  for (std::size_t stage = 0; stage < schedule.actions.size(); ++stage)
    tellers.emplace_back(schedule, timeline, stage);
  console.out << headline(schedule);
  const auto ticks = static_cast<int>(std::lround(timeline.makespan / tick));
  for (int t = 0; t <= ticks; ++t) {  // the last line shows what follows the last backward
    std::string label = "t" + std::to_string(t);
    label.resize(6, ' ');
    for (std::size_t stage = 0; stage < tellers.size(); ++stage) {
      console.out << (stage == 0 ? label : "      ") << "stage " << stage << ": "
                  << tellers[stage].tell(t * tick, (t + 1) * tick) << '\n';
    }
  }
  console.out << "Every stage is busy " << percent_text(timeline.utilization) << " of the time.\n";
  return 0;
}

}  // namespace sc::pipedream
