#include "pipedream/messages.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "pipedream/error.h"
#include "pipedream/worklist.h"

namespace sc::pipedream {

namespace {

// A value between stages: made by action `made` of stage `from`, needed by action `needed` of stage `to`.
struct Link {
  Action send;
  std::size_t made = 0;
  int to = 0;
  std::size_t needed = 0;
  std::size_t receive_before = 0;  // the receive is placed before this action of `to`
};

class Placer {
 public:
  explicit Placer(Schedule compute) : compute_(std::move(compute)), round_(compute_.actions.size()) {}

  Schedule place() {
    find_rounds();
    find_links();
    for (auto& [pair, links] : links_) choose_receives(links);
    return write();
  }

 private:
  // Puts all actions into the line of the proof (messages.h): an action's round is one more than those of the
  // action before it and of the one it waits for.
  void find_rounds() {
    Worklist work(compute_, message_slots(compute_));
    std::vector<int> arrival(message_slots(compute_), 0);
    const bool done = work.run([&](const Action& action, std::size_t /*index*/, std::size_t& token) {
      std::vector<int>& rounds = round_[static_cast<std::size_t>(action.stage)];
      int round = rounds.empty() ? 0 : rounds.back() + (is_compute(action.kind) ? 1 : 0);
      Message message;
      if (is_compute(action.kind) && needs_message(compute_, action, message)) {
        token = message_slot(compute_, message);
        if (!work.fulfilled(token)) return false;
        round = std::max(round, arrival[token] + 1);
      }
      rounds.push_back(round);
      Action send;
      if (is_compute(action.kind) && makes_message(compute_, action, send)) {
        const std::size_t slot = message_slot(compute_, message_of(compute_, send));
        arrival[slot] = round;
        work.fulfil(slot);
      }
      return true;
    });
    if (!done) refuse(work);
  }

  void refuse(const Worklist& work) const {
    for (std::size_t stage = 0; stage < compute_.actions.size(); ++stage) {
      const std::size_t index = work.next(stage);
      if (index >= compute_.actions[stage].size()) continue;
      throw InputError(ExitCode::data, "stage " + std::to_string(stage) + ", action " + std::to_string(index),
                       to_text(compute_.actions[stage][index]) + " waits for a value that is never made",
                       "order the compute actions so that each comes after what it needs");
    }
  }

  void find_links() {
    std::vector<std::size_t> needed(message_slots(compute_), 0);
    Message message;
    for (const std::vector<Action>& list : compute_.actions) {
      for (std::size_t i = 0; i < list.size(); ++i) {
        if (!is_compute(list[i].kind) || !needs_message(compute_, list[i], message)) continue;
        needed[message_slot(compute_, message)] = i;
      }
    }
    for (const std::vector<Action>& list : compute_.actions) {
      for (std::size_t i = 0; i < list.size(); ++i) {
        Action send;
        if (!is_compute(list[i].kind) || !makes_message(compute_, list[i], send)) continue;
        const int to = peer_of(compute_, send);
        const std::size_t slot = message_slot(compute_, message_of(compute_, send));
        links_[{send.stage, to}].push_back({send, i, to, needed[slot], 0});
      }
    }
  }

  // Places the receives for `links` of one directed pair, in the order of their sends.
  void choose_receives(std::vector<Link>& links) const {
    for (Link& link : links) {
      const auto to = static_cast<std::size_t>(link.to);
      const std::vector<int>& rounds = round_[to];
      const int made = round_[static_cast<std::size_t>(link.send.stage)][link.made];
      // On `to`, nothing that comes at or after the send in the line may precede the receive.
      const auto line = std::lower_bound(rounds.begin(), rounds.end(), made) - rounds.begin();
      link.receive_before = std::min(previous_compute(to, link.needed), static_cast<std::size_t>(line));
    }
    for (std::size_t i = links.size(); i-- > 1;) {
      links[i - 1].receive_before = std::min(links[i - 1].receive_before, links[i].receive_before);
    }
  }

  [[nodiscard]] std::size_t previous_compute(std::size_t stage, std::size_t index) const {
    for (std::size_t i = index; i-- > 0;) {
      if (is_compute(compute_.actions[stage][i].kind)) return i;
    }
    return index;
  }

  [[nodiscard]] Schedule write() const {
    std::vector<std::vector<std::vector<Action>>> before(compute_.actions.size());
    std::vector<std::vector<std::vector<Action>>> behind(compute_.actions.size());
    for (std::size_t stage = 0; stage < compute_.actions.size(); ++stage) {
      before[stage].resize(compute_.actions[stage].size());
      behind[stage].resize(compute_.actions[stage].size());
    }
    for (const auto& [pair, links] : links_) {
      for (const Link& link : links) {
        behind[static_cast<std::size_t>(link.send.stage)][link.made].push_back(link.send);
        before[static_cast<std::size_t>(link.to)][link.receive_before].push_back(
            receive_of(compute_, link.send));
      }
    }
    Schedule schedule = compute_;
    for (std::size_t stage = 0; stage < compute_.actions.size(); ++stage) {
      std::vector<Action>& list = schedule.actions[stage];
      list.clear();
      for (std::size_t i = 0; i < compute_.actions[stage].size(); ++i) {
        list.insert(list.end(), before[stage][i].begin(), before[stage][i].end());
        list.push_back(compute_.actions[stage][i]);
        list.insert(list.end(), behind[stage][i].begin(), behind[stage][i].end());
      }
    }
    return schedule;
  }

  const Schedule compute_;
  std::vector<std::vector<int>>
      round_;  // of every action; other actions than compute have the round of the one before
  std::map<std::pair<int, int>, std::vector<Link>> links_;
};

}  // namespace

Schedule without_messages(const Schedule& schedule) {
  Schedule compute = schedule;
  for (std::vector<Action>& list : compute.actions) {
    std::erase_if(list, [](const Action& action) { return is_message(action.kind); });
  }
  return compute;
}

Schedule with_messages(const Schedule& compute) {
  require_shape(compute);
  return Placer(without_messages(compute)).place();
}

}  // namespace sc::pipedream
