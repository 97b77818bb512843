#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <optional>
#include <random>
#include <vector>

#include "lessons/05_offload/exercise/which_update.h"
#include "tests/exercises/check.h"

namespace sc::exercise {
namespace {

using Unit = std::array<float, 5>;  // a unit's parameters
using Model = std::vector<Unit>;

constexpr std::int64_t kSteps = 12;

Model first_model(int units) {
  Model model(static_cast<std::size_t>(units));
  for (std::size_t u = 0; u < model.size(); ++u)
    for (std::size_t i = 0; i < model[u].size(); ++i)
      model[u][i] = static_cast<float>(u + 1) / static_cast<float>(i + 3);
  return model;
}

// The gradient of a step by the parameters that its forward has computed with: each element depends on all
// units.
Model gradient(const Model& params, std::int64_t step) {
  float all = static_cast<float>(step % 3);
  for (const Unit& unit : params) all += unit.front();
  Model grads = params;
  for (Unit& unit : grads)
    for (float& g : unit) g = 0.1F * g + 0.01F * all;
  return grads;
}

void update(Unit& unit, const Unit& grads) {
  for (std::size_t i = 0; i < unit.size(); ++i) unit[i] -= 0.5F * grads[i];
}

/// How many updates the parameters that forward of `step` computes with must have seen.
std::int64_t needed(const UpdateRule& rule, std::int64_t step) {
  const bool delayed = rule.delayed && step >= rule.warm_steps;
  return std::max<std::int64_t>(0, step - (delayed ? 1 : 0));
}

/// The parameters computed directly: all versions are kept, and looked up.
Model computed_directly(const UpdateRule& rule, int units) {
  std::vector<Model> versions = {first_model(units)};
  for (std::int64_t step = 0; step < kSteps; ++step) {
    const Model grads = gradient(versions[static_cast<std::size_t>(needed(rule, step))], step);
    versions.push_back(versions.back());
    for (std::size_t u = 0; u < grads.size(); ++u) update(versions.back()[u], grads[u]);
  }
  return versions.back();
}

/// How long everything takes, in ms; each time varies by up to the share `varies`.
struct Pace {
  double forward, backward, copy, adam;  // of a unit; backward: of all
  double varies = 0;
};

/// A device, host and link with a clock of their own. Nothing sleeps, and a wait that would never end is
/// noticed at once.
class MadeUpRun : public OffloadedRun {
 public:
  MadeUpRun(int units, const UpdateRule& rule, const Pace& pace, unsigned seed)
      : rule_(rule),
        pace_(pace),
        random_(seed),
        host_(first_model(units)),
        device_(host_),
        updates_(host_.size()),
        copies_(host_.size()) {}

  void begin(std::int64_t step) { step_ = step, fetched_ = 0, computed_ = 0, backward_ = false; }
  void end() const {
    require(posted_.size() == static_cast<std::size_t>(step_ + 1),
            where() + "after it " + std::to_string(posted_.size()) + " updates had been posted, not " +
                std::to_string(step_ + 1));
  }
  /// Lets the host make what is left of its updates.
  const Model& finish() {
    for (Update& posted : posted_) posted.after_fetches = 0;
    while (next()) make_next();
    return host_;
  }
  [[nodiscard]] double waited() const { return waited_; }
  [[nodiscard]] double now() const { return now_; }

  int num_units() const override { return static_cast<int>(host_.size()); }
  bool updated(int unit, std::int64_t updates) override {
    host_goes_on();
    require(++asked_ < 100'000, where() + "it asks updated() for ever; time passes in wait() alone");
    return updates_.at(static_cast<std::size_t>(unit)) >= updates;
  }
  void wait(int unit, std::int64_t updates) override {
    host_goes_on();
    std::int64_t& made = updates_.at(static_cast<std::size_t>(unit));
    if (made >= updates) return;
    require(
        unit == computed_,
        where() + fmt::format("forward waits for unit {} before it has computed unit {}", unit, computed_));
    require(updates <= needed(rule_, step_),
            where() + fmt::format("forward of unit {} waits for {} updates; it needs {}", unit, updates,
                                  needed(rule_, step_)));
    const double before = now_;
    while (made < updates) {
      require(next().has_value(), where() + stuck(unit, updates));
      now_ = std::max(now_, next()->end);
      make_next();
    }
    waited_ += now_ - before;
  }
  void fetch(int unit) override {
    host_goes_on();
    require(unit == fetched_ && unit < num_units(),
            where() + fmt::format("unit {} is fetched, it is unit {}'s turn", unit, fetched_));
    const auto u = static_cast<std::size_t>(unit);
    const std::int64_t due = needed(rule_, step_);
    require(updates_[u] >= due,
            where() + fmt::format("unit {} is fetched when it has seen {} updates; forward needs {}", unit,
                                  updates_[u], due));
    require(
        updates_[u] == due,
        where() +
            fmt::format(
                "the host has overwritten unit {} before forward has fetched what {} updates have made of it",
                unit, due));
    device_[u] = host_[u];
    link_free_ = std::max(link_free_, now_) + takes(pace_.copy);
    copies_[u].push_back({now_, link_free_});
    ++fetched_;
  }
  void compute(int unit) override {
    host_goes_on();
    require(unit == computed_ && unit < num_units(),
            where() + fmt::format("unit {} is computed, it is unit {}'s turn", unit, computed_));
    require(unit < fetched_, where() + fmt::format("unit {} is computed before it is fetched", unit));
    const bool more =
        fetched_ < num_units() && updates_[static_cast<std::size_t>(fetched_)] >= needed(rule_, step_);
    require(!more,
            where() + fmt::format("before unit {} is computed, the host has updated unit {}, which has "
                                  "not been fetched",
                                  unit, fetched_));
    now_ = std::max(now_, copies_[static_cast<std::size_t>(unit)].back().end) + takes(pace_.forward);
    ++computed_;
  }
  void backward() override {
    require(
        computed_ == num_units(),
        where() + fmt::format("backward begins when {} of {} units are computed", computed_, num_units()));
    require(!backward_, where() + "there is a second backward");
    grads_.push_back(gradient(device_, step_));
    now_ += takes(pace_.backward);
    backward_ = true;
  }
  void post(std::int64_t after_fetches) override {
    require(backward_ && posted_.size() < grads_.size(), where() + "one update is posted, after backward");
    posted_.push_back({now_, after_fetches});
  }

 private:
  struct Update {
    double at;
    std::int64_t after_fetches;
  };
  struct Copy {
    double begin, end;  // begin: of its wait for the link
  };
  struct Work {
    std::size_t unit;
    double begin, end;
  };

  [[nodiscard]] std::string where() const {
    return fmt::format(
        "{}, step {}: ", rule_.delayed ? fmt::format("delayed after {} steps", rule_.warm_steps) : "exact",
        step_);
  }
  double takes(double mean) {
    return mean * std::uniform_real_distribution<double>(1 - pace_.varies, 1 + pace_.varies)(random_);
  }
  [[nodiscard]] std::size_t next_unit() const { return made_ % host_.size(); }
  [[nodiscard]] std::size_t next_update() const { return made_ / host_.size(); }

  /// The work that the host does now, or will do next if that is known; empty while it waits for the device.
  std::optional<Work> next() {
    if (next_) return next_;
    if (next_update() >= posted_.size()) return {};
    const Update& update = posted_[next_update()];
    const std::vector<Copy>& copies = copies_[next_unit()];
    if (static_cast<std::int64_t>(copies.size()) < update.after_fetches) return {};
    double begin = std::max(host_free_, update.at);
    if (update.after_fetches > 0)
      begin = std::max(begin, copies[static_cast<std::size_t>(update.after_fetches - 1)].end);
    return next_ = Work{next_unit(), begin, begin + takes(pace_.adam)};
  }
  void make_next() {
    const Work work = *next();
    for (const Copy& copy : copies_[work.unit])
      require(work.begin >= copy.end || work.end <= copy.begin,
              where() + fmt::format("the host overwrites unit {} while it is being fetched", work.unit));
    update(host_[work.unit], grads_[next_update()][work.unit]);
    ++updates_[work.unit], ++made_;
    host_free_ = work.end;
    next_.reset();
  }
  void host_goes_on() {
    while (next() && next()->end <= now_) make_next();
  }
  std::string stuck(int unit, std::int64_t updates) {
    std::string text = fmt::format("forward waits for {} updates of unit {}, ", updates, unit);
    if (next_update() >= posted_.size()) return text + fmt::format("and {} were posted", posted_.size());
    return text + fmt::format(
                      "and the host until unit {} was fetched {} times, before it overwrites it: "
                      "nobody can go on",
                      next_unit(), posted_[next_update()].after_fetches);
  }

  const UpdateRule rule_;
  const Pace pace_;
  std::mt19937 random_;
  Model host_, device_;
  std::vector<std::int64_t> updates_;      // by unit: made
  std::vector<std::vector<Copy>> copies_;  // by unit
  std::vector<Model> grads_;               // by step
  std::vector<Update> posted_;             // the same
  std::size_t made_ = 0;                   // of all units' updates, in order
  std::optional<Work> next_;
  double now_ = 0, host_free_ = 0, link_free_ = 0, waited_ = 0;
  std::int64_t step_ = 0;
  int fetched_ = 0, computed_ = 0, asked_ = 0;
  bool backward_ = false;
};

/// Runs the learner's code; returns the time of a step, and that for which its forward waits for the host.
std::array<double, 2> check_run(int units, const UpdateRule& rule, const Pace& pace, unsigned seed) {
  MadeUpRun run(units, rule, pace, seed);
  for (std::int64_t step = 0; step < kSteps; ++step) {
    run.begin(step);
    offloaded_step(run, rule, step);
    run.end();
  }
  const std::array<double, 2> times = {run.now() / kSteps, run.waited() / kSteps};
  require(run.finish() == computed_directly(rule, units),
          std::string(rule.delayed ? "delayed" : "exact") +
              ": the parameters at the end are not those of a direct computation");
  return times;
}

constexpr UpdateRule kExact{}, kDelayed{true, 0};

std::string check() {
  constexpr Pace kSlowHost{1, 8, 0.2, 2.5}, kFastHost{1, 8, 0.2, 0.1}, kSlowLink{1, 8, 2, 0.5};
  for (const int units : {4, 1, 6})
    for (const UpdateRule& rule : {kExact, kDelayed, UpdateRule{true, 2}, UpdateRule{true, 3}}) {
      for (const Pace& pace : {kSlowHost, kFastHost, kSlowLink}) check_run(units, rule, pace, 1);
      for (unsigned seed = 1; seed <= 20; ++seed) check_run(units, rule, {1, 4, 0.5, 1.2, 1}, seed);
    }
  const auto [exact, exact_waits] = check_run(4, kExact, kSlowHost, 1);
  const auto [delayed, delayed_waits] = check_run(4, kDelayed, kSlowHost, 1);
  return fmt::format(
      "the bits of a direct computation, exact and delayed; where AdamW takes 10 ms and the device 12, "
      "a step takes {:.1f} ms exact ({:.1f} of them forward waits) and {:.1f} ms delayed ({:.1f})",
      exact, exact_waits, delayed, delayed_waits);
}

}  // namespace

const Exercise kExercise{"which_update",
                         "step t follows t updates, and a delayed forward does without the last one. "
                         "Each step fetches every unit once: count the "
                         "fetches up to the last forward that needs the old parameters",
                         check};

}  // namespace sc::exercise
