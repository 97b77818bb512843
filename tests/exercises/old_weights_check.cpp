#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <vector>

#include "lessons/08_weight_versions/exercise/old_weights.h"
#include "pipedream/windows.h"
#include "tests/exercises/check.h"

namespace sc::exercise {
namespace {

using pipedream::Action, pipedream::Kind, pipedream::VersionRule;
using Weights = std::array<float, 5>;

constexpr int kMicroBatches = 4, kSteps = 4;

Weights first_weights(const StagePlace& place) {
  Weights weights{};
  for (std::size_t i = 0; i < weights.size(); ++i)
    weights[i] = static_cast<float>(place.stage + 1) / static_cast<float>(i + 3);
  return weights;
}

void add_gradient(Weights& sum, const Weights& forward, const Weights& backward, int microbatch) {
  for (std::size_t i = 0; i < sum.size(); ++i)
    sum[i] += 0.3F * forward[i] * backward[i] + 0.01F * static_cast<float>(microbatch % 5);
}

Weights updated(Weights weights, const Weights& grads) {
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= 0.5F * grads[i];
  return weights;
}

int ceil_div(int a, int b) { return (a + b - 1) / b; }

/// The version that a micro-batch reads, by the lesson's table.
int version_by_formula(const StagePlace& place, int k) {
  const int last = place.stages - 1, n = place.update_every;
  if (place.versions == VersionRule::two_buffers) return std::max(0, k / n - 1);
  return std::max(0, k - (place.versions == VersionRule::stash ? last - place.stage : last)) / n;
}
int buffers_by_formula(const StagePlace& place) {
  const int last = place.stages - 1, n = place.update_every;
  if (place.versions == VersionRule::two_buffers) return 2;
  return 1 + ceil_div(place.versions == VersionRule::stash ? last - place.stage : last, n);
}

/// The weights computed directly: all versions are kept, and looked up.
Weights computed_directly(const StagePlace& place) {
  std::vector<Weights> versions = {first_weights(place)};
  Weights grads{};
  for (int k = 0; k < kSteps * kMicroBatches; ++k) {
    const Weights& read = versions.at(static_cast<std::size_t>(version_by_formula(place, k)));
    add_gradient(grads, read, read, k);
    if ((k + 1) % place.update_every > 0) continue;
    versions.push_back(updated(versions.back(), grads));
    grads = {};
  }
  return versions.back();
}

std::string to_text(const StagePlace& place) {
  return fmt::format("{}, {} stages, an update every {}, stage {}", name_of(place.versions), place.stages,
                     place.update_every, place.stage);
}

/// Buffers whose weights are numbers, with a tag that says which version they are.
class MadeUpBuffers : public WeightBuffers {
 public:
  explicit MadeUpBuffers(const StagePlace& place) : place_(place) {
    buffers_.push_back({first_weights(place), 0, true});
  }
  int take() override {
    const auto held = std::ranges::count(buffers_, true, &Buffer::held);
    const int enough = buffers_by_formula(place_);
    require(held < enough, where() + fmt::format("{} buffers are held; {} are enough", held + 1, enough));
    auto buffer = std::ranges::find(buffers_, false, &Buffer::held);
    if (buffer == buffers_.end()) buffer = buffers_.insert(buffers_.end(), Buffer{});
    *buffer = {unwritten(), kNothing, true};
    return static_cast<int>(buffer - buffers_.begin());
  }
  void give_back(int buffer) override { held(buffer, "is given back") = {unwritten(), kNothing, false}; }
  void update(int newest, int into) override {
    const Buffer from = held(newest, "is updated");
    require(from.version == updates_,
            where() + fmt::format("the update begins with version {}, not with {}, the newest", from.version,
                                  updates_));
    held(into, "is updated into") = {updated(from.weights, grads_), ++updates_, true};
    grads_ = {};
  }

  // The checker calls the functions below as it follows the stage's list.
  void comes_to(const Action& action) { at_ = action; }
  void computes(int buffer) {
    const Action& action = at_;
    const bool forward = action.kind == Kind::forward;
    const Buffer& read = held(buffer, forward ? "is read by forward" : "is read by backward");
    require(read.version == action.version,
            where() + fmt::format("{} reads {}; {} is version {}", forward ? "forward" : "backward",
                                  read.version == kNothing ? "what was never written"
                                                           : fmt::format("version {}", read.version),
                                  forward ? "the rule's" : "what its forward has read", action.version));
    if (forward) forward_[action.microbatch] = read.weights;
    if (!forward) add_gradient(grads_, forward_.at(action.microbatch), read.weights, action.microbatch);
  }
  void has_made(int updates) const {
    require(updates_ == updates, where() + fmt::format("{} updates were made, not {}", updates_, updates));
  }
  void finish() const {
    const auto newest = std::ranges::find(buffers_, updates_, &Buffer::version);
    require(newest != buffers_.end() && newest->weights == computed_directly(place_),
            to_text(place_) + ": the weights at the end are not those of a direct computation");
  }

 private:
  static constexpr int kNothing = -1;
  struct Buffer {
    Weights weights;
    int version = kNothing;
    bool held = false;
  };
  static Weights unwritten() {
    Weights weights{};
    weights.fill(std::numeric_limits<float>::quiet_NaN());
    return weights;
  }
  [[nodiscard]] std::string where() const {
    const bool of_one = at_.microbatch != pipedream::kNoMicrobatch;
    return to_text(place_) + (of_one ? fmt::format(", micro-batch {}: ", at_.microbatch)
                                     : fmt::format(", update {}: ", updates_));
  }
  Buffer& held(int buffer, const char* what) {
    const bool there = buffer >= 0 && buffer < static_cast<int>(buffers_.size());
    require(there && buffers_[static_cast<std::size_t>(buffer)].held,
            where() + fmt::format("buffer {} {}, and nobody holds it", buffer, what));
    return buffers_[static_cast<std::size_t>(buffer)];
  }

  const StagePlace place_;
  std::vector<Buffer> buffers_;
  std::map<int, Weights> forward_;  // by micro-batch
  Weights grads_{};
  Action at_;
  int updates_ = 0;
};

/// Lets the learner's code follow the list of one stage of lesson 08.
void check_stage(const StagePlace& place, const std::vector<Action>& list) {
  MadeUpBuffers buffers(place);
  OldWeights weights(place, buffers);
  for (const Action& action : list) {
    buffers.comes_to(action);
    if (action.kind == Kind::forward) buffers.computes(weights.forward(action.microbatch));
    if (action.kind == Kind::backward) buffers.computes(weights.backward(action.microbatch));
    if (action.kind != Kind::step) continue;
    weights.update();
    buffers.has_made(action.version);
  }
  buffers.finish();
}

void check_pipeline(VersionRule versions, int stages, int update_every) {
  const bool two = versions == VersionRule::two_buffers;
  const pipedream::Windows windows({.family = two ? pipedream::Family::two_bw : pipedream::Family::pipedream,
                                    .stages = stages,
                                    .microbatches = kMicroBatches,
                                    .versions = two ? VersionRule::stash : versions,
                                    .update_every = update_every});
  const pipedream::Schedule schedule = windows.whole(kSteps);
  for (int stage = 0; stage < stages; ++stage)
    check_stage({versions, stages, stage, update_every},
                schedule.actions.at(static_cast<std::size_t>(stage)));
}

std::string check() {
  for (const VersionRule versions : {VersionRule::stash, VersionRule::vertical_sync})
    for (const int stages : {2, 4, 1, 3})
      for (const int update_every : {1, 2, 4}) check_pipeline(versions, stages, update_every);
  for (const int stages : {2, 4, 1, 3}) check_pipeline(VersionRule::two_buffers, stages, kMicroBatches);
  return "1 to 4 stages under three rules: each computation reads its version, the weights are a direct "
         "computation's bit for bit, and no "
         "buffer is held that the lesson's table does not have";
}

}  // namespace

const Exercise kExercise{"old_weights",
                         "an update is made between two computations: ask which versions read_ still "
                         "names, and which the forward of next_ will read. For "
                         "stash that is the version being made",
                         check};

}  // namespace sc::exercise
