#include <algorithm>
#include <set>

#include "pipedream/findings.h"

namespace sc::pipedream {

namespace {

std::string version_text(int version) { return "version " + std::to_string(version); }

// What the stages must agree on: stage 0 records it, the others compare.
struct Agreed {
  std::vector<int> version_of_forward;  // by microbatch
  std::vector<int> gradients_in_step;   // the number of (microbatch, chunk) gradients that each step applies
};

class VersionCheck {
 public:
  VersionCheck(const Schedule& schedule, int stage, Findings& findings, Agreed& agreed)
      : schedule_(schedule),
        stage_(stage),
        findings_(findings),
        agreed_(agreed),
        forward_(static_cast<std::size_t>(schedule.chunks) * static_cast<std::size_t>(schedule.microbatches),
                 -1),
        ended_(static_cast<std::size_t>(schedule.chunks), 0) {}

  void run() {
    const std::vector<Action>& list = schedule_.actions[static_cast<std::size_t>(stage_)];
    for (; index_ < list.size(); ++index_) {
      const Action& action = list[index_];
      if (is_compute(action.kind)) read(action);
      if (action.kind == Kind::step) step(action);
      if (action.kind == Kind::stash) stash(action);
      if (action.kind == Kind::drop) drop(action);
    }
    if (gradients_ > 0)
      add(Rule::step, "the last " + std::to_string(gradients_) + " gradients are never applied");
    if (stage_ > 0 && steps_ != agreed_.gradients_in_step.size()) {
      add(Rule::step, "there are " + std::to_string(steps_) + " steps, on stage 0 " +
                          std::to_string(agreed_.gradients_in_step.size()));
    }
    if (!stash_.empty()) add(Rule::version, version_text(*stash_.begin()) + " is stashed and never dropped");
  }

 private:
  void add(Rule rule, const std::string& text) { findings_.add(rule, stage_, index_, text); }

  void read(const Action& action) {
    if (action.version != newest_ && stash_.count(action.version) == 0) {
      add(Rule::version, to_text(action) + " reads a version that is not there (the newest is " +
                             std::to_string(newest_) + ")");
    }
    int& of_forward =
        forward_[static_cast<std::size_t>(action.chunk) * static_cast<std::size_t>(schedule_.microbatches) +
                 static_cast<std::size_t>(action.microbatch)];
    if (action.kind == Kind::forward) {
      of_forward = action.version;
      forward(action);
    } else {
      backward(action, of_forward);
    }
  }

  void forward(const Action& action) {
    const VersionRule rule = schedule_.versions;
    if ((rule == VersionRule::stash || rule == VersionRule::none) && action.version != newest_) {
      add(Rule::version,
          to_text(action) + " reads not the newest weights, which are " + version_text(newest_));
    }
    if (rule == VersionRule::stash || rule == VersionRule::none) return;
    int& agreed = agreed_.version_of_forward[static_cast<std::size_t>(action.microbatch)];
    if (stage_ == 0 && action.chunk == 0) agreed = action.version;
    if (action.version != agreed) {
      add(Rule::version,
          to_text(action) + " reads another version than stage 0, which read " + std::to_string(agreed));
    }
  }

  void backward(const Action& action, int of_forward) {
    if (schedule_.versions == VersionRule::none) {
      if (action.version != newest_) {
        add(Rule::version,
            to_text(action) + " reads not the newest weights, which are " + version_text(newest_));
      }
    } else if (action.version != of_forward) {
      add(Rule::version, to_text(action) + " reads another version than its forward, which read " +
                             std::to_string(of_forward));
    }
    const int before_newest = std::max(0, newest_ - 1);  // the gradient becomes part of step newest_ + 1
    if (schedule_.versions == VersionRule::two_buffers && action.version != before_newest) {
      add(Rule::version, to_text(action) + " reads not the version before the newest, which is " +
                             std::to_string(before_newest));
    }
    if (makes_input_gradient(action.kind)) ++open_;
    if (!ends_microbatch(action.kind)) return;
    --open_;
    ++gradients_;
    ++ended_[static_cast<std::size_t>(action.chunk)];
  }

  void step(const Action& action) {
    if (open_ > 0) add(Rule::step, to_text(action) + " comes between the two halves of a backward");
    if (std::count(ended_.begin(), ended_.end(), ended_.front()) != schedule_.chunks) {
      add(Rule::step, to_text(action) + " applies more microbatches on one chunk than on another");
    }
    if (action.version != newest_ + 1) {
      add(Rule::step, to_text(action) + " follows " + version_text(newest_) + ": steps count by one");
    }
    newest_ = action.version;
    if (stage_ == 0) agreed_.gradients_in_step.push_back(gradients_);
    const bool known = steps_ < agreed_.gradients_in_step.size();
    if (gradients_ == 0 || (known && agreed_.gradients_in_step[steps_] != gradients_)) {
      add(Rule::step, to_text(action) + " applies " + std::to_string(gradients_) + " gradients" +
                          (known ? ", on stage 0 " + std::to_string(agreed_.gradients_in_step[steps_]) : ""));
    }
    gradients_ = 0;
    ++steps_;
    alive();
  }

  void stash(const Action& action) {
    if (action.version != newest_)
      add(Rule::version, to_text(action) + " copies a version that is not the newest");
    if (!stash_.insert(action.version).second) add(Rule::version, to_text(action) + " happens twice");
  }

  void drop(const Action& action) {
    if (stash_.erase(action.version) == 0)
      add(Rule::version, to_text(action) + " drops what was not stashed");
  }

  void alive() {
    const int alive = 1 + static_cast<int>(stash_.size()) - static_cast<int>(stash_.count(newest_));
    const int allowed = versions_allowed(schedule_, stage_);
    if (alive > allowed) {
      add(Rule::alive,
          std::to_string(alive) + " versions are alive, " + std::to_string(allowed) + " are allowed");
    }
  }

  const Schedule& schedule_;
  const int stage_;
  Findings& findings_;
  Agreed& agreed_;
  std::vector<int> forward_;  // the version that a microbatch's forward read, by chunk and microbatch
  std::vector<int> ended_;    // gradients completed since the start, by chunk
  std::set<int> stash_;
  std::size_t index_ = 0;
  std::size_t steps_ = 0;
  int newest_ = 0, open_ = 0, gradients_ = 0;
};

}  // namespace

void check_versions(const Schedule& schedule, Findings& findings) {
  Agreed agreed;
  agreed.version_of_forward.assign(static_cast<std::size_t>(schedule.microbatches), 0);
  for (int stage = 0; stage < schedule.stages; ++stage) VersionCheck(schedule, stage, findings, agreed).run();
}

}  // namespace sc::pipedream
