// Messages of one directed pair of ranks, on GPUs of one host, by copy engine: no multiprocessor waits for
// them or carries them. Internal to comm.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "common/comm/communicator.h"
#include "common/comm/nccl/nccl_channel.h"
#include "common/comm/nccl/shared_page.h"

namespace sc {

/// A ring of slots in the sender's GPU memory, which the receiver opens, and a word a slot in memory of the
/// host, which both have mapped and both GPUs' streams wait for and write.
///   Message  the sender's stream waits for an empty slot, copies into it and marks it full; the receiver's
///            waits for a full one, copies out of it and marks it empty. What is longer than a slot takes
///            several in turn.
///   Graphs   both ends are captured alike, with equal messages in each graph, and replayed equally often: a
///            word has the same value after a message as before it, and both ends take the slots in the order
///            of their operations, so that a graph may be replayed between messages without one.
///   Memory   kSlots x kSlotBytes of the sender's GPU, outside the ledger, as NCCL's own buffers.
class PeerChannel : public Abortable {
 public:
  static constexpr int kSlots = 2;
  static constexpr std::int64_t kSlotBytes = std::int64_t{16} << 20;
  /// What the receiver needs to open it; travels as bytes.
  struct Hello {
    std::int64_t pid = 0;
    int file = -1;  // of the words, in that process
    cudaIpcMemHandle_t ring{};
  };

  /// The sender's end.
  explicit PeerChannel(std::shared_ptr<NcclGroup> group);
  /// The receiver's end.  Errors: DeviceError where it cannot be opened.
  PeerChannel(std::shared_ptr<NcclGroup> group, const Hello& hello);
  /// Lets messages end for 5 s; then what waits is let go, and its tensors hold nonsense. The sender's memory
  /// stays until the receiver has closed it, or is lost.
  ~PeerChannel() override;

  [[nodiscard]] Hello hello() const;
  /// Puts one message on the channel's stream, after `start`: from `tensor` or into it.
  NcclEnd issue(const EventLease& start, const at::Tensor& tensor);
  /// The host plays the other side until nothing on the channel's stream waits any more; what is
  /// received is nonsense. A replayed graph that waits ends with the process, as one with windows does.
  void abort() noexcept override;

 private:
  const std::shared_ptr<NcclGroup> group_;
  const bool sends_;
  const std::unique_ptr<SharedPage> words_;  // the sender's: of each slot, 1 while it is full
  char* ring_ = nullptr;
  cudaIpcMemHandle_t handle_{};
  int slot_ = 0;
  const CudaStream stream_ = make_priority_stream();
};

/// Which rank can open what which other rank would send through, as [receiver x ranks + sender]: on the same
/// host, the GPU within reach, its memory open to other processes. Collective: every rank tries.
std::vector<bool> peers_within_reach(Communicator& host, int device);

}  // namespace sc
