// Sums and gathers of a group of ranks on GPUs of one host, by copy engine: no multiprocessor waits for them or carries them, and
// one small kernel adds. Internal to comm.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <map>
#include <memory>
#include <vector>

#include "common/comm/communicator.h"
#include "common/comm/nccl/nccl_channel.h"
#include "common/comm/nccl/peer_memory.h"

namespace sc {

/// Every rank opens the memory that the others send from, and pulls its part out of it. A word for each other rank, in memory of the
/// host that all have mapped and all GPUs' streams wait for and write, says that a rank's tensor may be read, and then that the
/// other has read it.
///   Sums     in fp32, ((r0 + r1) + r2) + ... whoever asks, rounded once: the contract's order (Communicator).
///   Graphs   as PeerChannel: a word has the same value after an operation as before it. A tensor's memory is opened when it is first
///            sent from, by all ranks together: not in a capture.
///   Memory   what a sum pulls lies in slots of (N - 1) parts, which grow as needed, of this rank's GPU, outside the ledger.
class PeerSums {
 public:
  /// Collective over `host`; every rank must reach every other (peers_within_reach).
  PeerSums(std::shared_ptr<NcclGroup> group, Communicator& host);
  /// As ~PeerChannel: lets operations end for 5 s, then lets go what waits.
  ~PeerSums();
  PeerSums(const PeerSums&) = delete;
  PeerSums& operator=(const PeerSums&) = delete;

  /// Whether the operation is one that this can do: reduce_scatter, all_gather, or an all_reduce of equal parts.
  [[nodiscard]] bool can(const Operation& op) const;
  /// Enqueues it behind `start`.  Errors: DeviceError in a capture, if a tensor's memory is not open or slots are too small.
  NcclEnd issue(const EventLease& start, const Operation& op, const at::Tensor& from, const at::Tensor& to,
                bool captured);
  /// Any thread, as PeerChannel's.
  void let_go() noexcept;

 private:
  /// This rank's tensor and the others' that are the same one to the program.
  struct Opened {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // the memory is another's when that has gone
    std::vector<const char*> of;                        // by rank
  };
  const std::vector<const char*>& opened(const at::Tensor& tensor, bool captured);
  void make_slots(std::int64_t bytes, bool captured);
  void offer();
  template <class Pull>
  void pull_from_all(const Pull& pull);
  void until_taken();
  void gather(const at::Tensor& into, const std::vector<const char*>& from, std::int64_t offset,
              std::int64_t bytes);
  [[nodiscard]] std::uintptr_t word(int of, int reader) const;

  const std::shared_ptr<NcclGroup> group_;
  Communicator& host_;
  const int me_, ranks_;
  std::vector<std::unique_ptr<SharedPage>> pages_;  // by rank
  PeerMemory memory_;                               // of the others
  std::map<const void*, Opened> tensors_;
  char* slots_ = nullptr;
  std::int64_t slot_bytes_ = 0;
  CudaStream stream_;
};

}  // namespace sc
