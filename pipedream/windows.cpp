#include "pipedream/windows.h"

#include <algorithm>
#include <limits>
#include <set>
#include <stdexcept>
#include <string>

#include "pipedream/check.h"
#include "pipedream/error.h"

namespace sc::pipedream {

namespace {

constexpr int kGenerated = Windows::kSteady + 3;  // two windows that repeat, and one after them

void append(std::vector<Action>& to, const std::vector<Action>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

// The actions after the cut that belong to the first `microbatches` and their `steps`. Versions that are no
// longer read are dropped at the end.
std::vector<Action> only(const std::vector<Action>& list, int microbatches, int steps, std::set<int> kept) {
  std::vector<Action> rest;
  for (const Action& action : list) {
    const bool of_step = action.microbatch == kNoMicrobatch;
    if (!of_step && action.microbatch >= microbatches) continue;
    if (action.kind == Kind::step && action.version > steps) break;
    if (action.kind == Kind::stash && (action.version >= steps || !kept.insert(action.version).second))
      continue;
    if (action.kind == Kind::drop && kept.erase(action.version) == 0) continue;
    rest.push_back(action);
  }
  const int stage = list.empty() ? 0 : list.front().stage;
  for (const int version : kept) rest.push_back({stage, Kind::drop, kNoMicrobatch, 0, version});
  return rest;
}

}  // namespace

std::vector<std::vector<Action>> cut_at_batches(const std::vector<Action>& list, int microbatches) {
  std::vector<std::vector<Action>> windows(1);
  std::vector<Action> later;  // receives that are posted before their batch begins
  for (const Action& action : list) {
    const int end = static_cast<int>(windows.size()) * microbatches;
    const bool next = action.microbatch >= end;  // never true for step, stash and drop
    if (action.kind == Kind::forward && next) {
      windows.push_back(std::move(later));
      later.clear();
    }
    (action.kind == Kind::receive_activation && next ? later : windows.back()).push_back(action);
  }
  append(windows.back(), later);
  return windows;
}

Windows::Windows(GenerateOptions batch) : batch_(batch) {
  if (!is_asynchronous(batch.family))
    throw InputError(ExitCode::usage, "family",
                     std::string(name_of(batch.family)) + " flushes: it has an end",
                     "choose pipedream or 2bw");
  if (batch.microbatches < batch.stages) {
    throw InputError(ExitCode::usage, "microbatches",
                     std::to_string(batch.microbatches) + " a batch are fewer than the " +
                         std::to_string(batch.stages) + " stages: a batch would not fill the pipeline",
                     "choose at least " + std::to_string(batch.stages) + " microbatches a batch");
  }
  batch_.batches = kGenerated;
  const Schedule generated = generate(batch_);
  const int every = batch.update_every > 0              ? batch.update_every
                    : batch.family == Family::pipedream ? 1
                                                        : batch.microbatches;
  steps_ = batch.microbatches / every;
  for (const std::vector<Action>& list : generated.actions)
    cut_.push_back(cut_at_batches(list, batch.microbatches));
  for (const std::vector<std::vector<Action>>& windows : cut_) {
    if (windows[kSteady + 1] != shifted(windows[kSteady], 1))
      throw std::logic_error("the windows of " + generated.name + " do not repeat");
  }
  proven_ = whole(kSteady + 2);
  for (const Violation& violation : check(proven_).violations)
    throw std::logic_error("the windows of " + generated.name + ": " + to_text(violation));
}

std::vector<Action> Windows::shifted(std::vector<Action> list, std::int64_t batches) const {
  if (batches * batch_.microbatches > std::numeric_limits<int>::max() / 2)
    throw std::logic_error("more microbatches than an action can number");
  for (Action& action : list) {
    const bool of_step = action.microbatch == kNoMicrobatch;
    if (!of_step) action.microbatch += static_cast<int>(batches * batch_.microbatches);
    if (of_step || is_compute(action.kind)) action.version += static_cast<int>(batches * steps_);
  }
  return list;
}

std::vector<Action> Windows::window(int stage, std::int64_t t) const {
  const std::int64_t own = std::min<std::int64_t>(t, kSteady);
  return shifted(cut_[static_cast<std::size_t>(stage)][static_cast<std::size_t>(own)], t - own);
}

std::vector<Action> Windows::rest(int stage, std::int64_t batches) const {
  const std::int64_t own = std::min<std::int64_t>(batches, kSteady + 1);
  const auto& windows = cut_[static_cast<std::size_t>(stage)];
  std::set<int> kept;
  for (std::int64_t t = 0; t < own; ++t) {
    for (const Action& action : windows[static_cast<std::size_t>(t)]) {
      if (action.kind == Kind::stash) kept.insert(action.version);
      if (action.kind == Kind::drop) kept.erase(action.version);
    }
  }
  return shifted(only(windows[static_cast<std::size_t>(own)], static_cast<int>(own) * batch_.microbatches,
                      static_cast<int>(own) * steps_, kept),
                 batches - own);
}

Schedule Windows::whole(int batches) const {
  GenerateOptions options = batch_;
  options.batches = 1;
  Schedule schedule = generate(options);
  schedule.microbatches = batches * batch_.microbatches;
  for (int stage = 0; stage < batch_.stages; ++stage) {
    std::vector<Action>& list = schedule.actions[static_cast<std::size_t>(stage)];
    list.clear();
    for (int t = 0; t < batches; ++t) append(list, window(stage, t));
    append(list, rest(stage, batches));
  }
  return schedule;
}

}  // namespace sc::pipedream
