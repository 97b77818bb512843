// Runs all stages' lists at once, each in its order, until no stage can continue: the loop shared by the
// placing of messages, the deadlock check and the simulator. A stage that cannot do its next action sleeps on
// a token; the action that fulfils the token wakes it.
#pragma once

#include <cstddef>
#include <vector>

#include "pipedream/schedule.h"

namespace sc::pipedream {

class Worklist {
 public:
  /// Tokens are 0 <= token < `tokens`; at most one stage ever sleeps on each.
  Worklist(const Schedule& schedule, std::size_t tokens)
      : schedule_(schedule),
        next_(schedule.actions.size(), 0),
        fulfilled_(tokens, false),
        sleeper_(tokens, -1) {}

  [[nodiscard]] bool fulfilled(std::size_t token) const { return fulfilled_[token]; }

  void fulfil(std::size_t token) {
    fulfilled_[token] = true;
    if (sleeper_[token] >= 0) ready_.push_back(sleeper_[token]);
    sleeper_[token] = -1;
  }

  /// Runs all lists; true if every one was finished. `try_action(action, index, token)` does the action and
  /// returns true, or names the token that it waits for and returns false. Each action is tried at most
  /// twice.
  template <class TryAction>
  bool run(TryAction try_action) {
    for (int stage = schedule_.stages; stage-- > 0;) ready_.push_back(stage);
    std::size_t finished = 0;
    while (!ready_.empty()) {
      const int stage = ready_.back();
      ready_.pop_back();
      finished += run_stage(static_cast<std::size_t>(stage), try_action) ? 1U : 0U;
    }
    return finished == schedule_.actions.size();
  }

  /// The index of a stage's first action that has not been done.
  [[nodiscard]] std::size_t next(std::size_t stage) const { return next_[stage]; }

 private:
  template <class TryAction>
  bool run_stage(std::size_t stage, TryAction& try_action) {
    const std::vector<Action>& list = schedule_.actions[stage];
    for (std::size_t& index = next_[stage]; index < list.size(); ++index) {
      std::size_t token = 0;
      if (try_action(list[index], index, token)) continue;
      sleeper_[token] = static_cast<int>(stage);
      return false;
    }
    return true;
  }

  const Schedule& schedule_;
  std::vector<std::size_t> next_;
  std::vector<bool> fulfilled_;
  std::vector<int> sleeper_;
  std::vector<int> ready_;
};

}  // namespace sc::pipedream
