// An abstract machine: every stage does its list in order; a send waits until its receive is posted, a
// compute action until what it needs has been sent. Doing an action never prevents another stage from doing
// its own, so the order in which the machine tries the stages does not matter: if it gets stuck, every
// execution does.
#include "pipedream/findings.h"
#include "pipedream/worklist.h"

namespace sc::pipedream {

namespace {

class Machine {
 public:
  explicit Machine(const Schedule& schedule)
      : schedule_(schedule), slots_(message_slots(schedule)), work_(schedule, 2 * slots_) {}

  bool run() {
    return work_.run([&](const Action& action, std::size_t /*index*/, std::size_t& token) {
      if (waits(action, token) && !work_.fulfilled(token)) return false;
      if (is_message(action.kind)) {
        const std::size_t slot = message_slot(schedule_, message_of(schedule_, action));
        work_.fulfil(is_send(action.kind) ? sent(slot) : posted(slot));
      }
      return true;
    });
  }

  [[nodiscard]] bool finished(int stage) const { return index_of(stage) >= list_of(stage).size(); }

  [[nodiscard]] Wait wait_of(int stage) const {
    Wait wait;
    wait.stage = stage;
    wait.index = index_of(stage);
    wait.action = list_of(stage)[wait.index];
    wait.for_action = is_send(wait.action.kind) ? receive_of(schedule_, wait.action) : sender_of(wait.action);
    wait.for_stage = wait.for_action.stage;
    return wait;
  }

 private:
  [[nodiscard]] std::size_t posted(std::size_t slot) const { return slot; }
  [[nodiscard]] std::size_t sent(std::size_t slot) const { return slots_ + slot; }
  [[nodiscard]] const std::vector<Action>& list_of(int stage) const {
    return schedule_.actions[static_cast<std::size_t>(stage)];
  }
  [[nodiscard]] std::size_t index_of(int stage) const { return work_.next(static_cast<std::size_t>(stage)); }

  bool waits(const Action& action, std::size_t& token) const {
    if (is_send(action.kind)) {
      token = posted(message_slot(schedule_, message_of(schedule_, action)));
      return true;
    }
    Message message;
    if (!is_compute(action.kind) || !needs_message(schedule_, action, message)) return false;
    token = sent(message_slot(schedule_, message));
    return true;
  }

  // The send of the value that a compute action waits for.
  [[nodiscard]] Action sender_of(const Action& action) const {
    Message message;
    needs_message(schedule_, action, message);
    const int from = message.to + (message.gradient ? 1 : -1);
    return {from % schedule_.stages, message.gradient ? Kind::send_gradient : Kind::send_activation,
            action.microbatch, from / schedule_.stages, 0};
  }

  const Schedule& schedule_;
  const std::size_t slots_;
  Worklist work_;
};

// Follows the waits from any stuck stage until a stage comes up again. Every message has its other end, so a
// stuck stage waits for another stuck stage.
std::vector<Wait> find_cycle(const Machine& machine, const Schedule& schedule) {
  constexpr std::size_t kUnseen = static_cast<std::size_t>(-1);
  int stage = 0;
  while (machine.finished(stage)) ++stage;
  std::vector<Wait> path;
  std::vector<std::size_t> seen_at(static_cast<std::size_t>(schedule.stages), kUnseen);
  while (seen_at[static_cast<std::size_t>(stage)] == kUnseen) {
    seen_at[static_cast<std::size_t>(stage)] = path.size();
    path.push_back(machine.wait_of(stage));
    stage = path.back().for_stage;
  }
  path.erase(path.begin(),
             path.begin() + static_cast<std::ptrdiff_t>(seen_at[static_cast<std::size_t>(stage)]));
  return path;
}

}  // namespace

void check_deadlock(const Schedule& schedule, Findings& findings, std::vector<Wait>& cycle) {
  Machine machine(schedule);
  if (machine.run()) return;
  cycle = find_cycle(machine, schedule);
  findings.add(Rule::deadlock, cycle.front().stage, cycle.front().index,
               to_text(cycle.front().action) + " never ends: " + std::to_string(cycle.size()) +
                   " stages wait for each other in a ring");
}

std::string to_text(const Wait& wait) {
  const std::string other = "stage " + std::to_string(wait.for_stage);
  const std::string what = (is_send(wait.action.kind) ? " posts " : " does ") + to_text(wait.for_action);
  return "stage " + std::to_string(wait.stage) + ", action " + std::to_string(wait.index) + ": " +
         to_text(wait.action) + " waits until " + other + what;
}

}  // namespace sc::pipedream
