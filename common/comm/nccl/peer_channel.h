// Messages of one directed pair of ranks on GPUs of one host, by copy engine: no multiprocessor waits for
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

/// A ring of slots in the sender's GPU memory, which the receiver opens, and one word per slot in host
/// memory. Both ranks map the words, and both GPUs' streams wait for them and write them.
///   Message  the sender's stream waits for an empty slot, copies into it and marks it full; the receiver's
///            stream waits for a full slot, copies out of it and marks it empty. A message longer than a slot
///            takes several slots in turn.
///   Graphs   both ends are captured alike, with equal messages in each graph, and replayed equally often. A
///            word has the same value before and after a message, and both ends take the slots in the order
///            of their operations, so that a graph may be replayed between messages outside of graphs.
///   Memory   kSlots x kSlotBytes of the sender's GPU, outside the ledger, like NCCL's own buffers.
class PeerChannel : public Abortable {
 public:
  static constexpr int kSlots = 2;
  static constexpr std::int64_t kSlotBytes = std::int64_t{16} << 20;
  /// What the sender tells the receiver, as bytes, so that it can open the channel.
  struct Hello {
    std::int64_t pid = 0;
    int file = -1;  // file descriptor of the words in process `pid`
    cudaIpcMemHandle_t ring{};
  };

  /// Makes the sender's end.
  explicit PeerChannel(std::shared_ptr<NcclGroup> group);
  /// Makes the receiver's end.
  ///   Errors  DeviceError if the sender's memory cannot be opened.
  PeerChannel(std::shared_ptr<NcclGroup> group, const Hello& hello);
  /// Waits up to 5 s for messages to end, then releases the waiting copies, whose tensors hold nonsense. The
  /// sender's memory stays until the receiver has closed it; if it never does, the memory is leaked.
  ~PeerChannel() override;

  [[nodiscard]] Hello hello() const;
  /// Enqueues one message on the channel's stream, after `start`. The sender reads `tensor`, the receiver
  /// writes it.
  NcclEnd issue(const EventLease& start, const at::Tensor& tensor);
  /// Writes the words that the other side should write, until no work on the channel's stream waits any more;
  /// received data are nonsense. A graph replay that waits ends only with the process.
  void abort() noexcept override;

 private:
  const std::shared_ptr<NcclGroup> group_;
  const bool sends_;
  const std::unique_ptr<SharedPage> words_;  // the sender's; a word is 1 while its slot is full
  char* ring_ = nullptr;
  cudaIpcMemHandle_t handle_{};
  int slot_ = 0;
  const CudaStream stream_ = make_priority_stream();
};

/// Which receiver can open which sender's GPU memory, at [receiver x ranks + sender]: on the same host, with
/// the GPU in reach and its memory open to other processes. Collective, because every rank tries.
std::vector<bool> peers_within_reach(Communicator& host, int device);

}  // namespace sc
