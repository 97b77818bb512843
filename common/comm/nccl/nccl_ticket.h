// An operation on its way over NCCL, and its ticket. Internal to comm.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "common/comm/communicator.h"
#include "common/comm/completion.h"
#include "common/comm/nccl/nccl_channel.h"

namespace sc {

/// Shared by its ticket, by the record (which asks when wait() has long returned), and by the queue of a pair
/// that is not connected yet.
class NcclOperation {
 public:
  NcclOperation(std::shared_ptr<NcclGroup> group, std::string text)
      : group_(std::move(group)), text_(std::move(text)) {}
  /// It is on the channel's stream, or (null) went by copy engine. `captured`: it went into a graph instead.
  void issued(std::shared_ptr<NcclChannel> channel, NcclEnd end, bool captured) noexcept;
  void failed(OpFailure failure) noexcept { issue_.fail(std::move(failure)); }
  /// Any thread. A captured one has ended: a graph runs when it is launched.
  [[nodiscard]] bool ended() const noexcept;
  void until_ended() const;
  /// Makes `stream` wait for the end, and marks it before and after. Blocks until it has been issued; throws
  /// what has gone wrong so far. Once.
  GpuTimes make_wait(cudaStream_t stream);
  /// Blocks the host until the end. Throws as make_wait. Once.
  void wait_on_host();
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  const std::shared_ptr<NcclGroup> group_;
  const std::string text_;
  mutable Completion issue_;
  // Written before issue_ ends:
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
  /// The caller's stream goes on when the operation has ended, and so does whoever gets this memory next on
  /// that stream.
  void wait() override;
  void wait_on_host() override { operation_->wait_on_host(); }
  void dropped() noexcept override { drops_->add(); }
  std::function<bool()> ended_later() override {
    return [operation = operation_] { return operation->ended(); };
  }
  /// Without its errors, which wait() throws.
  OpEnd end() override;
  [[nodiscard]] GpuTimes gpu_times() override { return times_; }

 private:
  std::shared_ptr<NcclOperation> operation_;
  std::shared_ptr<DropCounter> drops_;
  at::Tensor first_, second_;
  GpuTimes times_;
};

}  // namespace sc
