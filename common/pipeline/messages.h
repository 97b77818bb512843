// The messages between neighbouring stages: activations forward, gradients back. A receive is posted and does
// not block: whoever needs the value waits for it. Nor does a send: whoever uses its buffer again waits for
// it.
#pragma once

#include <vector>

#include "common/pipeline/stage.h"

namespace sc {

class Messages {
 public:
  /// blocking: a send returns when its receive has begun.
  Messages(RunContext& context, const Share& share, Stage& stage, bool blocking = false);

  void receive_activation(const pipedream::Action& action, const Slot& slot);
  void send_activation(const pipedream::Action& action, const Slot& slot);
  void receive_gradient(const pipedream::Action& action, const Slot& slot);
  void send_gradient(const pipedream::Action& action, const Slot& slot);

  /// What forward, or backward, reads has arrived. Where it comes from this stage, there is nothing to wait
  /// for.
  void wait_activation(const Slot& slot);
  void wait_gradient(const Slot& slot);
  /// What was sent last from the buffer that forward will write has left; of a gradient's buffer (-1: none).
  void wait_activation_sent(const Slot& slot);
  void wait_gradient_sent(int buffer);
  /// All that has been asked for has arrived; everything sent has left.
  void wait_received();
  void wait_sent();

  /// Evaluation: a forward of all stages, one batch after the other, with the parameters that the stage has
  /// loaded.
  void forward_loss(const Batch& batch, at::Tensor& sums);

 private:
  Ticket send(const at::Tensor& t, const pipedream::Action& action);
  Ticket receive(at::Tensor& t, const pipedream::Action& action);
  /// Of this replica, and of this tensor rank.
  [[nodiscard]] Rank rank_of_stage(int stage) const {
    return context_.shape.mesh.moved(context_.shape.rank, Axis::stages, stage);
  }

  RunContext& context_;
  const Share& share_;
  Stage& stage_;
  const bool blocking_;
  std::vector<Ticket> received_x_, received_grad_;  // by input; by gradient of the pool
  std::vector<Ticket> sent_x_, sent_grad_;          // by set; by gradient of the pool
};

}  // namespace sc
