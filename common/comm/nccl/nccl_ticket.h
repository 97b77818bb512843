// An operation in flight over NCCL, and its ticket. Internal to comm.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "common/comm/communicator.h"
#include "common/comm/completion.h"
#include "common/comm/nccl/nccl_channel.h"

namespace sc {

/// An operation in flight. Its ticket, the queue of an unconnected pair, and the record, which asks long
/// after wait(), share it.
class NcclOperation {
 public:
  NcclOperation(std::shared_ptr<NcclGroup> group, std::string text)
      : group_(std::move(group)), text_(std::move(text)) {}
  /// Called when the operation was enqueued on the channel's stream, or sent by copy engine (`channel` null);
  /// `captured` if a graph now holds it.
  void issued(std::shared_ptr<NcclChannel> channel, NcclEnd end, bool captured) noexcept;
  void failed(OpFailure failure) noexcept { issue_.fail(std::move(failure)); }
  /// Whether the operation has ended; any thread may ask. One captured into a graph counts as ended, since
  /// the graph runs it later.
  [[nodiscard]] bool ended() const noexcept;
  void until_ended() const;
  /// Makes `stream` wait for the operation's end, and marks the times before and after. Blocks until the
  /// operation was issued. Throws errors known so far. Must be called once.
  GpuTimes make_wait(cudaStream_t stream);
  /// Blocks the host until the operation has ended. Throws like make_wait(). Must be called once.
  void wait_on_host();
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  const std::shared_ptr<NcclGroup> group_;
  const std::string text_;
  mutable Completion issue_;
  // The members below are written before `issue_` ends, and read only after it.
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
  /// Makes the caller's stream wait for the operation, and so whoever gets the tensor's memory next on it.
  void wait() override;
  void wait_on_host() override { operation_->wait_on_host(); }
  void dropped() noexcept override { drops_->add(); }
  std::function<bool()> ended_later() override {
    return [operation = operation_] { return operation->ended(); };
  }
  /// The operation's end for code without the ticket. It reports no errors; wait() throws them.
  OpEnd end() override;
  [[nodiscard]] GpuTimes gpu_times() override { return times_; }

 private:
  std::shared_ptr<NcclOperation> operation_;
  std::shared_ptr<DropCounter> drops_;
  at::Tensor first_, second_;
  GpuTimes times_;
};

}  // namespace sc
