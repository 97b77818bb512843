// The buffer that each action of a stage's list uses, found in advance by walking the list in order.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "pipedream/schedule.h"

namespace sc {

/// No buffer; otherwise a buffer is a number within the pool of its kind.
inline constexpr int kNoBuffer = -1;

/// The buffers that one action uses: of a micro-batch in a part (the blocks of a chunk), or of a step.
struct Slot {
  /// The buffers of every block's output, and of what forward saved for backward.
  int set = kNoBuffer;
  /// The buffer of the first block's input, received or embedded. If the chunk before is on the same stage
  /// nothing is received: the input is the last output in that chunk's set, input_in_set.
  int input = kNoBuffer, input_in_set = kNoBuffer;
  /// The buffer of the gradient of the last block's output; none if the head makes it.
  int grad_of_output = kNoBuffer;
  /// The buffer of the gradient of the first block's input; none if the embedding takes it.
  int grad_of_input = kNoBuffer;
  /// The buffer of what backward_input leaves for backward_weights.
  int pending = kNoBuffer;
  /// The version of the weights that is read; a step begins with it, and writes to next_weights, which may be
  /// the same buffer.
  int weights = 0, next_weights = 0;
  bool operator==(const Slot&) const = default;
};

struct Pools {
  int sets = 0, inputs = 0, grads = 0, pending = 0, weights = 1;
  bool operator==(const Pools&) const = default;
};

/// The buffers of one kind, numbered from 0.
class Pool {
 public:
  /// Takes the lowest free buffer, or a new one.
  int take();
  /// Makes a buffer free again; kNoBuffer has no effect.
  void give(int buffer);
  [[nodiscard]] int size() const { return static_cast<int>(taken_.size()); }

 private:
  std::vector<bool> taken_;
};

/// Walks any list that pipedream::check passes, whoever wrote it, however long: action by action, in the
/// list's order. How long a buffer is taken:
///   input           from the post of its receive (or the forward that embeds it) to the end of that
///                   micro-batch's backward, which reads it again
///   set             from forward to the end of backward; where the next chunk is on the same stage and reads
///                   its input there, to the end of that chunk's backward
///   grad_of_output  from the post of its receive to the end of backward
///   grad_of_input   from backward to its send, or to the backward that reads it on the same stage
///   weights         a step writes where the newest version is, unless that one is stashed: then to a free
///                   buffer. A version that is dropped leaves its buffer free
class SlotWalk {
 public:
  /// Walks with the numbers of stages and chunks of `schedule`; the actions may be another list's.
  explicit SlotWalk(const pipedream::Schedule& schedule) : schedule_(schedule) {
    weights_[0] = versions_.take();
  }
  Slot next(const pipedream::Action& action);
  /// The slots of those between forward (or a receive's post) and backward's end, by micro-batch and chunk.
  [[nodiscard]] const std::map<std::pair<int, int>, Slot>& alive() const { return alive_; }
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
  std::map<Key, int> left_;     // the set in which this one reads its input, where its own chunk has ended
  std::map<int, int> weights_;  // the buffer of every version that is kept
  int newest_ = 0;
  bool stashed_ = false;  // the newest version is kept beyond the next step
};

struct Slots {
  std::vector<Slot> of;  // by action of the list
  Pools pools;
};

Slots assign_slots(const pipedream::Schedule& schedule, int stage);

}  // namespace sc
