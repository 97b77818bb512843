// An operation in flight over NCCL, and its ticket. Internal to comm.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "common/comm/communicator.h"
#include "common/comm/completion.h"
#include "common/comm/nccl/nccl_channel.h"

namespace sc {

/// Shared by its ticket, by the record (which asks long after wait() has returned), and by the queue of a
/// pair that is not yet connected.
class NcclOperation {
 public:
  NcclOperation(std::shared_ptr<NcclGroup> group, std::string text)
      : group_(std::move(group)), text_(std::move(text)) {}
  /// The operation was enqueued on the channel's stream, or sent by copy engine (`channel` null). `captured`:
  /// into a graph.
  void issued(std::shared_ptr<NcclChannel> channel, NcclEnd end, bool captured) noexcept;
  void failed(OpFailure failure) noexcept { issue_.fail(std::move(failure)); }
  /// Whether it has ended; callable from any thread. A captured operation counts as ended, since the graph
  /// runs it later.
  [[nodiscard]] bool ended() const noexcept;
  void until_ended() const;
  /// Makes `stream` wait for the end, with a mark before and after. Blocks until the operation has been
  /// issued. Throws errors known so far. Call it once.
  GpuTimes make_wait(cudaStream_t stream);
  /// Blocks the host until the end. Throws like make_wait(). Call it once.
  void wait_on_host();
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  const std::shared_ptr<NcclGroup> group_;
  const std::string text_;
  mutable Completion issue_;
  // The members below are written before issue_ ends.
  std::shared_ptr<NcclChannel> channel_;
  NcclEnd end_;
  bool captured_ = false;
};

class NcclTicket : public TicketState {
 public:
  NcclTicket(std::shared_ptr<NcclOperation> operation, std::shared_ptr<DropCounter> drops, at::Tensor first,
             at::Tensor second)
      : operation_(std::move(operation)),
        drops_(std::move(drops)),
        first_(std::move(first)),
        second_(std::move(second)) {}
  bool ready() override { return operation_->ended(); }
  /// Makes the caller's stream wait for the operation. Whoever gets the tensor's memory next on that stream
  /// waits as well.
  void wait() override;
  void wait_on_host() override { operation_->wait_on_host(); }
  void dropped() noexcept override { drops_->add(); }
  std::function<bool()> ended_later() override {
    return [operation = operation_] { return operation->ended(); };
  }
  /// The operation's end, without its errors, which wait() throws.
  OpEnd end() override;
  [[nodiscard]] GpuTimes gpu_times() override { return times_; }

 private:
  std::shared_ptr<NcclOperation> operation_;
  std::shared_ptr<DropCounter> drops_;
  at::Tensor first_, second_;
  GpuTimes times_;
};

}  // namespace sc
