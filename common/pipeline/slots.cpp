#include "common/pipeline/slots.h"

#include <utility>

namespace sc {

using pipedream::Action;
using pipedream::Kind;

int Pool::take() {
  std::size_t i = 0;
  while (i < taken_.size() && taken_[i]) ++i;
  if (i == taken_.size()) taken_.push_back(false);
  taken_[i] = true;
  return static_cast<int>(i);
}

void Pool::give(int buffer) {
  if (buffer != kNoBuffer) taken_[static_cast<std::size_t>(buffer)] = false;
}

Slot SlotWalk::next(const Action& a) {
  if (a.microbatch == pipedream::kNoMicrobatch) return of_versions(a);
  Slot& alive = alive_[key_of(a)];
  if (is_compute(a.kind)) alive.weights = weights_.at(a.version);
  switch (a.kind) {
    case Kind::receive_activation:
      alive.input = inputs_.take();
      break;
    case Kind::forward:
      alive.set = sets_.take();
      if (schedule_.position(a) == 0) alive.input = inputs_.take();
      if (alive.input == kNoBuffer) alive.input_in_set = alive_.at({a.microbatch, a.chunk - 1}).set;
      break;
    case Kind::receive_gradient:
      alive.grad_of_output = grads_.take();
      break;
    case Kind::backward:
    case Kind::backward_input:
      return begin_backward(a, alive);
    case Kind::backward_weights: {
      const Slot used = alive;
      end_backward(key_of(a), alive);
      return used;
    }
    case Kind::send_gradient: {
      const Slot used = alive;
      grads_.give(std::exchange(alive.grad_of_input, kNoBuffer));
      forget(key_of(a));
      return used;
    }
    default:
      break;
  }
  return alive;
}

Slot SlotWalk::of_versions(const Action& a) {
  const int newest = weights_.at(newest_);
  Slot slot{.weights = newest, .next_weights = newest};
  if (a.kind == Kind::stash) stashed_ = true;
  if (a.kind == Kind::drop) {
    const auto dropped = weights_.extract(a.version);
    versions_.give(dropped.mapped());
  }
  if (a.kind != Kind::step) return slot;
  if (stashed_) {
    slot.next_weights = versions_.take();
  } else {
    weights_.erase(newest_);
  }
  stashed_ = false;
  weights_[newest_ = a.version] = slot.next_weights;
  return slot;
}

Slot SlotWalk::begin_backward(const Action& a, Slot& alive) {
  const int position = schedule_.position(a);
  if (alive.grad_of_output == kNoBuffer && position + 1 < schedule_.positions())
    alive.grad_of_output = std::exchange(alive_.at({a.microbatch, a.chunk + 1}).grad_of_input, kNoBuffer);
  forget({a.microbatch, a.chunk + 1});
  if (position > 0) alive.grad_of_input = grads_.take();
  if (a.kind == Kind::backward_input) alive.pending = pending_.take();
  const Slot used = alive;
  if (a.kind == Kind::backward) end_backward(key_of(a), alive);
  return used;
}

// A micro-batch leaves behind only its outgoing gradient, and its set if the next chunk, on the same stage,
// still reads its input there.
void SlotWalk::end_backward(const Key& key, Slot& alive) {
  const auto next = alive_.find({key.first, key.second + 1});
  if (next != alive_.end() && next->second.set != kNoBuffer && next->second.input_in_set == alive.set) {
    left_[next->first] = alive.set;
  } else {
    sets_.give(alive.set);
  }
  if (const auto left = left_.extract(key); !left.empty()) sets_.give(left.mapped());
  inputs_.give(alive.input);
  grads_.give(alive.grad_of_output);
  pending_.give(alive.pending);
  alive = {.grad_of_input = alive.grad_of_input};
  forget(key);
}

// Forgets micro-batches that use no buffer any more, because a list may be endless.
void SlotWalk::forget(const Key& key) {
  const auto found = alive_.find(key);
  if (found == alive_.end()) return;
  if (found->second.grad_of_input == kNoBuffer && found->second.set == kNoBuffer) alive_.erase(found);
}

Slots assign_slots(const pipedream::Schedule& schedule, int stage) {
  Slots slots;
  SlotWalk walk(schedule);
  for (const Action& action : schedule.actions[static_cast<std::size_t>(stage)])
    slots.of.push_back(walk.next(action));
  slots.pools = walk.pools();
  return slots;
}

}  // namespace sc
