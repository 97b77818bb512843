// Which buffer each action of a stage's list uses, found in advance by walking the list in the order of
// execution.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "pipedream/schedule.h"

namespace sc {

/// The buffers of one action; -1: none.
struct Slot {
  int set = -1;    // what forward keeps for backward: every block's output and saved tensors
  int input = -1;  // the first block's input, received or embedded
  // Used instead of `input`: the set whose last output is the input (two chunks on one stage, without a
  // message).
  int from_set = -1;
  int grad_in = -1;     // the gradient of the last block's output; none if the head makes it
  int grad_out = -1;    // the gradient of the first block's input; none if the embedding takes it
  int pending = -1;     // what backward_input leaves for backward_weights
  int weights = 0;      // the buffer of the version that is read; for a step, of the one it starts from
  int weights_out = 0;  // for a step, the buffer of the version that it makes; may equal `weights`
  bool operator==(const Slot&) const = default;
};

/// How many buffers of each kind are in use at the same time.
struct Pools {
  int sets = 0, inputs = 0, grads = 0, pending = 0, weights = 1;
  bool operator==(const Pools&) const = default;
};

/// Buffers of one kind: hands out the lowest free one, or a new one.
class Pool {
 public:
  int take();
  /// Returns a buffer to the pool; -1 is ignored.
  void give(int buffer);
  [[nodiscard]] int size() const { return static_cast<int>(taken_.size()); }

 private:
  std::vector<bool> taken_;
};

/// Walks a list that pipedream::check accepts, of any author and length, action by action. Lifetimes of the
/// buffers:
///   input     from the post of its receive (or the forward that embeds it) to the end of that microbatch's
///             backward, which reads it again
///   set       from forward to the end of backward; if the next chunk is on the same stage, also until the
///             end of that chunk's backward
///   grad_in   from the post of its receive to the end of backward
///   grad_out  from backward to the send that takes it away, or to the backward that reads it on the same
///             stage
///   weights   a step writes over the newest version, unless that one is stashed: then into a free buffer. A
///             dropped version's buffer is free
class SlotWalk {
 public:
  /// Only the stages and chunks of `schedule` matter; its actions need not be the ones that are walked.
  explicit SlotWalk(const pipedream::Schedule& schedule) : schedule_(schedule) {
    weights_[0] = versions_.take();
  }
  Slot next(const pipedream::Action& action);
  /// The buffers in use between forward (or the post of its receive) and the end of backward, by micro-batch
  /// and chunk.
  [[nodiscard]] const std::map<std::pair<int, int>, Slot>& alive() const { return alive_; }
  /// The buffer of each version that exists.
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
  std::map<Key, int> left_;     // the set of the chunk before, whose backward has ended
  std::map<int, int> weights_;  // the buffer of each version that exists
  int newest_ = 0;
  bool stashed_ = false;  // the newest version is kept beyond the next step
};

struct Slots {
  std::vector<Slot> of;  // for every action
  Pools pools;
};

/// Walks the list of one stage.
Slots assign_slots(const pipedream::Schedule& schedule, int stage);

}  // namespace sc
