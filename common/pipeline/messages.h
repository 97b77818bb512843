// The messages between neighbouring stages: activations forward, gradients back. A receive is posted and does
// not block: whoever needs the value waits for it. Nor does a send: whoever uses its buffer again waits for
// it.
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

  /// Waits for the input that forward reads, and for the gradient that backward reads. What comes from this
  /// stage itself is there already.
  void wait_activation(const Slot& slot);
  void wait_gradient(const Slot& slot);
  /// Waits until the last message from the set that forward will write has left; and from a gradient's
  /// buffer, which kNoBuffer is not.
  void wait_activation_sent(const Slot& slot);
  void wait_gradient_sent(int buffer);
  /// Waits for every receive that has been posted, and for every send.
  void wait_received();
  void wait_sent();

  /// A forward of an evaluation through all stages, with the parameters that each stage has loaded. One batch
  /// at a time.
  void forward_loss(const Batch& batch, at::Tensor& sums);

 private:
  Ticket send(const at::Tensor& t, const pipedream::Action& action);
  Ticket receive(at::Tensor& t, const pipedream::Action& action);
  /// The rank that has this one's replica and tensor rank on another stage.
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
