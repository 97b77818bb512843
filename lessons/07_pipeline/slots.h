// Which buffer each action of a stage's list uses: found once, by walking the list as it will be executed.
#pragma once

#include <vector>

#include "pipedream/schedule.h"

namespace sc {

/// The buffers of one action; -1: none.
struct Slot {
  int set = -1;    // what forward keeps for backward: every block's output, and what it saved
  int input = -1;  // the first block's input, received or embedded
  int from_set =
      -1;  // instead of it: the set whose last output it is (two chunks on one stage, without a message)
  int grad_in = -1;   // the gradient of the last block's output; none where the head makes it
  int grad_out = -1;  // the gradient of the first block's input; none where the embedding takes it
  int pending = -1;   // what backward_input leaves for backward_weights
  bool operator==(const Slot&) const = default;
};

/// How many buffers of each kind are in use at the same time.
struct Pools {
  int sets = 0, inputs = 0, grads = 0, pending = 0;
  bool operator==(const Pools&) const = default;
};

struct Slots {
  std::vector<Slot> of;  // of every action
  Pools pools;
};

/// For any list that pipedream::check passes, whoever wrote it.
///   input     from the post of its receive (or the forward that embeds it) to the end of that microbatch's
///             backward, which reads it again
///   set       from forward to the end of backward; where the next chunk is on the same stage, of its as well
///   grad_in   from the post of its receive to the end of backward
///   grad_out  from backward to the send that takes it away, or to the backward that reads it on the same stage
Slots assign_slots(const pipedream::Schedule& schedule, int stage);

}  // namespace sc
