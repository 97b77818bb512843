// The messages between neighbouring stages: activations forward, gradients back. A posted receive does not
// block; the code that needs the value waits for it. A send does not block either; the code that reuses its
// buffer waits for it.
#pragma once

#include <vector>

#include "common/pipeline/stage.h"

namespace sc {

class Messages {
 public:
  /// With `blocking` a send returns when its receive has begun.
  Messages(RunContext& context, const Share& share, Stage& stage, bool blocking = false);

  void receive_activation(const pipedream::Action& action, const Slot& slot);
  void send_activation(const pipedream::Action& action, const Slot& slot);
  /// Waits for what was sent from its buffer before: gradients come and go in one pool.
  void receive_gradient(const pipedream::Action& action, const Slot& slot);
  void send_gradient(const pipedream::Action& action, const Slot& slot);

  /// Wait for the input of forward or backward. Values from this stage need no wait.
  void wait_activation(const Slot& slot);
  void wait_gradient(const Slot& slot);
  /// Wait until the last send from the buffer that will be written has ended; for gradients `buffer` may be
  /// kNoBuffer.
  void wait_activation_sent(const Slot& slot);
  void wait_gradient_sent(int buffer);
  /// Wait for all receives, or for all sends, that have been posted.
  void wait_received();
  void wait_sent();

  /// Evaluation: one batch's forward through all stages, with the parameters that the stage has loaded.
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
