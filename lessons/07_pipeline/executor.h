// Executes a stage's list, action by action, but for its steps: messages, forward, backward.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "pace.h"
#include "stage.h"

namespace sc {

class Executor {
 public:
  Executor(RunContext& context, const Share& share, const PipelineOptions& options)
      : context_(context),
        share_(share),
        sends_(options.sends),
        stage_(context, share),
        pace_(share),
        received_x_(static_cast<std::size_t>(share.slots.pools.inputs)),
        received_grad_(static_cast<std::size_t>(share.slots.pools.grads)),
        sent_x_(static_cast<std::size_t>(share.slots.pools.sets)),
        sent_grad_(static_cast<std::size_t>(share.slots.pools.grads)) {}

  /// Forward and backward of nothing, before the first message. Gradients and activations hold numbers afterwards
  /// that the first micro-batch overwrites.
  void warm_up();

  /// Where backward leaves what it makes.
  struct Sum {
    Write write;       // the gradient of the weights: a first micro-batch's, or one more
    at::Tensor& sums;  // [4] fp64: += loss and tokens, where the head is
    std::function<void(int unit)> done = [](int) {};  // that unit's gradient is complete for this micro-batch
  };
  /// sum: null but for backward and its halves. batch: of compute actions.
  void perform(const pipedream::Action& action, const Slot& slot, const Batch* batch, const Sum* sum);
  /// What takes a stage's time, and nothing that it waits for: a span of the timeline.
  template <class Work>
  void compute(const pipedream::Action& action, Work&& work) {
    const auto mark = context_.timeline.mark(pipedream::to_text(action));
    pace_.run(action, work);
  }
  /// Says what this stage comes to: the watchdog may have to say where it hangs.
  void comes_to(std::size_t index, const pipedream::Action& action) const;
  /// What has been asked for has arrived.
  void wait_received();
  /// Everything sent has left.
  void wait_sent();
  /// A forward of all stages, without backward.
  void forward_loss(const Batch& batch, int weights, at::Tensor& sums);

  [[nodiscard]] Stage& stage() { return stage_; }
  [[nodiscard]] const Stage& stage() const { return stage_; }
  [[nodiscard]] Pace& pace() { return pace_; }

 private:
  Ticket send(const at::Tensor& t, const pipedream::Action& action);
  void forward(const pipedream::Action& action, const Slot& slot, const Batch& batch);
  void backward(const pipedream::Action& action, const Slot& slot, const Batch& batch, const Sum& sum);
  [[nodiscard]] Rank peer(const pipedream::Action& action) const;
  [[nodiscard]] Rank rank_of_stage(int stage) const;

  RunContext& context_;
  const Share& share_;
  const Sends sends_;
  Stage stage_;
  Pace pace_;
  std::vector<Ticket> received_x_, received_grad_;  // by input; by gradient of the pool
  std::vector<Ticket> sent_x_, sent_grad_;          // by set; by gradient of the pool
};

}  // namespace sc
