// Which buffer each action of a stage's list uses: found once, by walking the list as it will be executed.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "pipedream/schedule.h"

namespace sc {

/// The buffers of one action; -1: none.
struct Slot {
  int set = -1;    // what forward keeps for backward: every block's output, and what it saved
  int input = -1;  // the first block's input, received or embedded
  int from_set =
      -1;  // instead of it: the set whose last output it is (two chunks on one stage, without a message)
  int grad_in = -1;     // the gradient of the last block's output; none where the head makes it
  int grad_out = -1;    // the gradient of the first block's input; none where the embedding takes it
  int pending = -1;     // what backward_input leaves for backward_weights
  int weights = 0;      // the buffer of the version that is read; of a step: that it begins with
  int weights_out = 0;  // of a step: the buffer of the version that it makes; may be the same
  bool operator==(const Slot&) const = default;
};

/// How many buffers of each kind are in use at the same time.
struct Pools {
  int sets = 0, inputs = 0, grads = 0, pending = 0, weights = 1;
  bool operator==(const Pools&) const = default;
};

/// Buffers of one kind: the lowest free one, or one more.
class Pool {
 public:
  int take();
  /// Of -1: nothing.
  void give(int buffer);
  [[nodiscard]] int size() const { return static_cast<int>(taken_.size()); }

 private:
  std::vector<bool> taken_;
};

/// For any list that pipedream::check passes, whoever wrote it, however long: action by action, in the list's
/// order.
///   input     from the post of its receive (or the forward that embeds it) to the end of that microbatch's
///             backward, which reads it again
///   set       from forward to the end of backward; where the next chunk is on the same stage, of its as well
///   grad_in   from the post of its receive to the end of backward
///   grad_out  from backward to the send that takes it away, or to the backward that reads it on the same
///             stage
///   weights   a step writes where the newest version is, unless that one is stashed: then to a free buffer.
///             What is dropped is free
class SlotWalk {
 public:
  /// schedule: its stages and chunks count; it need not be the one whose actions come.
  explicit SlotWalk(const pipedream::Schedule& schedule) : schedule_(schedule) {
    weights_[0] = versions_.take();
  }
  Slot next(const pipedream::Action& action);
  /// What is between forward (or the post of its receive) and the end of backward, by micro-batch and chunk.
  [[nodiscard]] const std::map<std::pair<int, int>, Slot>& alive() const { return alive_; }
  /// Versions that are there: their buffers.
  [[nodiscard]] const std::map<int, int>& versions() const { return weights_; }
  [[nodiscard]] Pools pools() const {
    return {sets_.size(), inputs_.size(), grads_.size(), pending_.size(), versions_.size()};
  }

 private:
  using Key = std::pair<int, int>;  // microbatch, chunk
  static Key key_of(const pipedream::Action& a) { return {a.microbatch, a.chunk}; }
  Slot of_versions(const pipedream::Action& a);
  Slot begin_backward(const pipedream::Action& a, Slot& alive);
  void end_backward(const Key& key, Slot& alive);
  void forget(const Key& key);

  const pipedream::Schedule& schedule_;
  Pool sets_, inputs_, grads_, pending_, versions_;
  std::map<Key, Slot> alive_;
  std::map<Key, int> left_;     // the set of the chunk before, which has ended
  std::map<int, int> weights_;  // by version that is there: its buffer
  int newest_ = 0;
  bool stashed_ = false;  // the newest version is kept beyond the next step
};

struct Slots {
  std::vector<Slot> of;  // of every action
  Pools pools;
};

/// One stage's list, walked.
Slots assign_slots(const pipedream::Schedule& schedule, int stage);

}  // namespace sc
