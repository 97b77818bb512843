#include "slots.h"

#include <map>
#include <utility>

namespace sc {
namespace {

using pipedream::Action;
using pipedream::Kind;

/// Buffers of one kind: the lowest free one, or one more.
class Pool {
 public:
  int take() {
    std::size_t i = 0;
    while (i < taken_.size() && taken_[i]) ++i;
    if (i == taken_.size()) taken_.push_back(false);
    taken_[i] = true;
    return static_cast<int>(i);
  }
  void give(int buffer) {
    if (buffer >= 0) taken_[static_cast<std::size_t>(buffer)] = false;
  }
  [[nodiscard]] int size() const { return static_cast<int>(taken_.size()); }

 private:
  std::vector<bool> taken_;
};

class Walk {
 public:
  Walk(const pipedream::Schedule& schedule, int stage) : schedule_(schedule), stage_(stage) {}

  Slots run() {
    Slots slots;
    for (const Action& action : schedule_.actions[static_cast<std::size_t>(stage_)])
      slots.of.push_back(slot_of(action));
    slots.pools = {sets_.size(), inputs_.size(), grads_.size(), pending_.size()};
    return slots;
  }

 private:
  using Key = std::pair<int, int>;  // microbatch, chunk
  static Key key_of(const Action& a) { return {a.microbatch, a.chunk}; }
  Slot slot_of(const Action& a) {
    Slot& alive = alive_[key_of(a)];
    switch (a.kind) {
      case Kind::receive_activation:
        alive.input = inputs_.take();
        break;
      case Kind::forward:
        alive.set = sets_.take();
        if (schedule_.position(a) == 0) alive.input = inputs_.take();
        if (alive.input < 0) alive.from_set = alive_.at({a.microbatch, a.chunk - 1}).set;
        break;
      case Kind::receive_gradient:
        alive.grad_in = grads_.take();
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
        grads_.give(std::exchange(alive.grad_out, -1));
        return used;
      }
      case Kind::send_activation:
      case Kind::step:
      case Kind::stash:
      case Kind::drop:
        break;
    }
    return alive;
  }

  Slot begin_backward(const Action& a, Slot& alive) {
    const int position = schedule_.position(a);
    if (alive.grad_in < 0 && position + 1 < schedule_.positions())
      alive.grad_in = std::exchange(alive_.at({a.microbatch, a.chunk + 1}).grad_out, -1);
    if (position > 0) alive.grad_out = grads_.take();
    if (a.kind == Kind::backward_input) alive.pending = pending_.take();
    const Slot used = alive;
    if (a.kind == Kind::backward) end_backward(key_of(a), alive);
    return used;
  }

  // What the microbatch leaves behind is its outgoing gradient alone, and its set where the next chunk, on the
  // same stage, still reads its input there.
  void end_backward(const Key& key, Slot& alive) {
    const auto next = alive_.find({key.first, key.second + 1});
    if (next != alive_.end() && next->second.set >= 0 && next->second.from_set == alive.set) {
      left_[next->first] = alive.set;
    } else {
      sets_.give(alive.set);
    }
    if (const auto left = left_.extract(key); !left.empty()) sets_.give(left.mapped());
    inputs_.give(alive.input);
    grads_.give(alive.grad_in);
    pending_.give(alive.pending);
    alive = {.grad_out = alive.grad_out};
  }

  const pipedream::Schedule& schedule_;
  const int stage_;
  Pool sets_, inputs_, grads_, pending_;
  std::map<Key, Slot> alive_;
  std::map<Key, int> left_;  // the set of the chunk before, which has ended
};

}  // namespace

Slots assign_slots(const pipedream::Schedule& schedule, int stage) { return Walk(schedule, stage).run(); }

}  // namespace sc
