// The messages between neighbouring stages: activations forward, gradients back. Neither receives nor sends
// block: whoever needs a value waits for its receive, and whoever reuses a buffer waits for its send.
#pragma once

#include <vector>

#include "common/pipeline/stage.h"

namespace sc {

class Messages {
 public:
  /// Makes the messages of one stage. If `blocking`, a send returns when its receive has begun.
  Messages(RunContext& context, const Share& share, Stage& stage, bool blocking = false);

  void receive_activation(const pipedream::Action& action, const Slot& slot);
  void send_activation(const pipedream::Action& action, const Slot& slot);
  /// Waits for the last send from the same buffer before it receives: gradients come and go in one pool.
  void receive_gradient(const pipedream::Action& action, const Slot& slot);
  void send_gradient(const pipedream::Action& action, const Slot& slot);

  /// Waits for the input of forward or backward. Values from this stage need no wait.
  void wait_activation(const Slot& slot);
  void wait_gradient(const Slot& slot);
  /// Waits until the last send from the buffer that will be written has ended; `buffer` may be kNoBuffer.
  void wait_activation_sent(const Slot& slot);
  void wait_gradient_sent(int buffer);
  /// Waits for all receives, or all sends, that have been posted.
  void wait_received();
  void wait_sent();

  /// Runs forward of one evaluated batch through all stages, with the parameters that each has loaded.
  void forward_loss(const Batch& batch, at::Tensor& sums);

 private:
  Ticket send(const at::Tensor& t, const pipedream::Action& action);
  Ticket receive(at::Tensor& t, const pipedream::Action& action);
  /// The rank of another stage with the same replica and tensor rank.
  [[nodiscard]] Rank rank_of_stage(int stage) const {
    return context_.shape.mesh.moved(context_.shape.rank, Axis::stages, stage);
  }

  RunContext& context_;
  const Share& share_;
  Stage& stage_;
  const bool blocking_;
  std::vector<Ticket> received_x_, received_grad_;  // by buffer of the pools `inputs` and `grads`
  std::vector<Ticket> sent_x_, sent_grad_;          // by buffer of the pools `sets` and `grads`
};

}  // namespace sc
