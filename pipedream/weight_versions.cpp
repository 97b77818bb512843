#include "pipedream/weight_versions.h"

#include <algorithm>
#include <set>

namespace sc::pipedream {

namespace {

class StageVersions {
 public:
  StageVersions(const Schedule& schedule, int every) : schedule_(schedule), every_(every) {}

  std::vector<Action> annotate(std::vector<Action> list) {
    choose(list);
    return insert_steps(list);
  }

 private:
  [[nodiscard]] bool completes(const Action& action) {
    if (!ends_microbatch(action.kind)) return false;
    ended_ = (ended_ + 1) % (every_ * schedule_.chunks);
    return ended_ == 0;
  }

  [[nodiscard]] int version_of_forward(int microbatch, int newest) const {
    switch (schedule_.versions) {
      case VersionRule::vertical_sync:
        return vertical_version(microbatch, schedule_.stages, every_);
      case VersionRule::two_buffers:
        return two_buffer_version(microbatch, every_);
      default:
        return newest;
    }
  }

  // Finds the version that every action reads, and for each version the last action that reads it.
  void choose(std::vector<Action>& list) {
    std::vector<int> of_forward(static_cast<std::size_t>(schedule_.microbatches), 0);
    int newest = 0;
    for (std::size_t i = 0; i < list.size(); ++i) {
      Action& action = list[i];
      int& version = of_forward[static_cast<std::size_t>(action.microbatch)];
      if (action.kind == Kind::forward) version = version_of_forward(action.microbatch, newest);
      // [anchor: version-of-backward]
      action.version = schedule_.versions == VersionRule::none ? newest : version;
      const auto slot = static_cast<std::size_t>(action.version);
      if (last_read_.size() <= slot) last_read_.resize(slot + 1, 0);
      last_read_[slot] = i;
      if (completes(action)) ++newest;
    }
  }

  [[nodiscard]] bool read_after(int version, std::size_t index) const {
    const auto slot = static_cast<std::size_t>(version);
    return slot < last_read_.size() && last_read_[slot] > index;
  }

  std::vector<Action> insert_steps(const std::vector<Action>& list) {
    std::vector<Action> out;
    std::set<int> kept;
    int newest = 0;
    for (std::size_t i = 0; i < list.size(); ++i) {
      out.push_back(list[i]);
      if (!completes(list[i])) continue;
      const auto add = [&](Kind kind, int version) {
        out.push_back({list[i].stage, kind, kNoMicrobatch, 0, version});
      };
      // [anchor: stash-and-drop]
      std::erase_if(kept, [&](int version) {
        if (read_after(version, i)) return false;
        add(Kind::drop, version);
        return true;
      });
      if (read_after(newest, i)) {
        add(Kind::stash, newest);
        kept.insert(newest);
      }
      add(Kind::step, ++newest);
    }
    return out;
  }

  const Schedule& schedule_;
  const int every_;
  int ended_ = 0;
  std::vector<std::size_t> last_read_;
};

}  // namespace

int vertical_version(int microbatch, int stages, int every) {
  return std::max(0, microbatch - stages + 1) / every;
}

int two_buffer_version(int microbatch, int every) { return std::max(0, microbatch / every - 1); }

Schedule with_versions(const Schedule& compute, int every) {
  Schedule schedule = compute;
  for (std::vector<Action>& list : schedule.actions) {
    list = StageVersions(schedule, every).annotate(std::move(list));
  }
  return schedule;
}

}  // namespace sc::pipedream
