// A communicator for ranks that share a GPU: their tensors travel through host memory. Does not include CUDA;
// in a build without GPU code the same functions refuse.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/comm/forwarding_communicator.h"
#include "common/comm/mpi/mpi_communicator.h"
#include "common/comm/scratch.h"

namespace sc {

class StagedLane;
class DropCounter;
class EventPool;

/// Moves GPU tensors in pieces: from the GPU to pinned host memory, through `inner` (MpiCommunicator), and
/// back, as NCCL refuses two ranks on one GPU. It is slow: every byte crosses PCIe twice, without overlap.
///   Lanes    the collectives have a thread with a stream and a buffer, and so has each directed pair of
///            ranks after its first message. Operations of a lane run one after another, in issue order. CPU
///            tensors use the same lanes, and are handed to `inner` whole.
///   Tickets  wait() blocks the host until the result is on the GPU.
///   Times    the host may reach a wait long before the GPU does: a wait counts from the moment when the
///            caller's stream has nothing left to do.
///   Sums     those of `inner`, in rank order: results equal those of Mpi, bit for bit.
///   Graphs   cannot be captured: DeviceError.
///   Zero     GPU operations without elements are not issued, and their tickets are empty.
///   End      the destructor lets operations end for 5 s; receives without a sender are given up at once.
class StagedCommunicator : public ForwardingCommunicator {
 public:
  /// The piece of pinned host memory, in bytes. A group has 2 for collectives, 1 per possible pair.
  static constexpr std::int64_t kPiece = kStagedPiece;

  /// Makes `device` (gpu_of in nccl_devices.h) this rank's GPU. `pinned` allocates a u8 tensor of that many
  /// bytes in pinned host memory; a run takes it from the ledger.Rank 0 says on stderr that this is slow.
  static std::unique_ptr<Communicator> make(std::unique_ptr<Communicator> inner, int device,
                                            const ScratchAllocator& pinned);
  ~StagedCommunicator() override;

  void barrier() override;
  std::unique_ptr<Communicator> split(int color) override;
  Ticket issue(const Operation& op, const at::Tensor& from, const at::Tensor& to,
               std::optional<Rank> peer) override;
  [[nodiscard]] std::int64_t dropped_tickets() const override;

 private:
  StagedCommunicator(std::unique_ptr<Communicator> of_host, int device, const ScratchAllocator& pinned,
                     std::shared_ptr<DropCounter> drops);
  [[nodiscard]] std::string text_of(const std::string& what) const;
  StagedLane& messages(bool to, Rank peer);
  void run_on_lane(const char* what, const std::function<void()>& work);

  const int device_;
  ScratchAllocator pinned_;
  std::shared_ptr<DropCounter> drops_;
  std::shared_ptr<EventPool> moments_;
  at::Tensor scratch_;  // u8
  std::unique_ptr<StagedLane> collectives_;
  std::map<std::pair<bool, Rank>, std::unique_ptr<StagedLane>> messages_;  // by (is a send, peer)
};

}  // namespace sc
