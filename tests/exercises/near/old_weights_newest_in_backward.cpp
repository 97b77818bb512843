// Backward reads the newest weights, and all that were read by a forward are kept for nothing.
#include <algorithm>

#include "lessons/08_weight_versions/exercise/old_weights.h"

namespace sc {

namespace {

int version_of_forward(const StagePlace& place, int microbatch, int newest) {
  switch (place.versions) {
    case pipedream::VersionRule::vertical_sync:
      return std::max(0, microbatch - (place.stages - 1)) / place.update_every;
    case pipedream::VersionRule::two_buffers:
      return std::max(0, microbatch / place.update_every - 1);
    default:
      return newest;
  }
}

}  // namespace

int OldWeights::forward(int microbatch) {
  const int version = version_of_forward(place_, microbatch, held_.rbegin()->first);
  read_[microbatch] = version;
  next_ = microbatch + 1;
  return held_.at(version);
}

int OldWeights::backward(int microbatch) {
  read_.erase(microbatch);
  return held_.rbegin()->second;
}

void OldWeights::update() {
  const int newest = held_.rbegin()->first, buffer = held_.rbegin()->second;
  const int next = version_of_forward(place_, next_, newest + 1);
  const auto needed = [&](int version) {
    return version >= next ||
           std::ranges::any_of(read_, [&](const auto& of) { return of.second == version; });
  };
  std::erase_if(held_, [&](const auto& held) {
    const bool goes = held.first < newest && !needed(held.first);
    if (goes) buffers_.give_back(held.second);
    return goes;
  });
  const int into = needed(newest) ? buffers_.take() : buffer;
  buffers_.update(buffer, into);
  if (into == buffer) held_.erase(newest);
  held_[newest + 1] = into;
}

}  // namespace sc
