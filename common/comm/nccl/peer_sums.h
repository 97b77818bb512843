// Sums and gathers of a group of ranks on GPUs of one host, by copy engine: no multiprocessor waits for them
// or carries them, and one small kernel adds. Internal to comm.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <vector>

#include "common/comm/communicator.h"
#include "common/comm/nccl/nccl_channel.h"
#include "common/comm/nccl/shared_page.h"

namespace sc {

/// Windows are memory that every rank of the group has opened. Everything is pushed, which is faster than to
/// pull: of a gather each rank copies its part into the others' windows; of a sum, each of the others' parts
/// into a slot of theirs, and they add. A word for each other rank, in memory of the host that all have
/// mapped and all GPUs' streams wait for and write, says that the other may write here, and then that it has.
///   Sums     in fp32, ((r0 + r1) + r2) + ... whoever asks, rounded once: the contract's order
///            (Communicator).
///   Graphs   as PeerChannel: a word has the same value after an operation as before it.
///   Memory   slots are as long as the longest window, of this rank's GPU, outside the ledger.
class PeerSums : public Abortable, public std::enable_shared_from_this<PeerSums> {
 public:
  static constexpr int kMostRanks = 16;
  /// Collective over `host`, of at most so many; every rank must reach every other (peers_within_reach).
  PeerSums(std::shared_ptr<NcclGroup> group, Communicator& host);
  /// As ~PeerChannel: lets operations end for 5 s, then lets go what waits.
  ~PeerSums() override;

  /// Communicator::window, for sums.  Errors: InputError(missing) if the GPU has no such memory left.
  std::shared_ptr<void> window(Bytes bytes);
  /// Whether the operation is one that this can do: an all_gather into a window, a reduce_scatter out of one,
  /// or, once there was a window, an all_reduce: of equal parts in a window (t-1)/t of it goes out twice, of
  /// anything else all of it to each other rank.
  [[nodiscard]] bool can(const Operation& op, const at::Tensor& from, const at::Tensor& to) const;
  /// Enqueues it behind `start`.
  NcclEnd issue(const EventLease& start, const Operation& op, const at::Tensor& from, const at::Tensor& to);
  /// As PeerChannel's.
  void abort() noexcept override;

 private:
  /// One of each rank's, opened here; this rank's own among them.
  struct Window {
    std::int64_t bytes = 0;
    std::vector<char*> of = {};  // by rank
  };
  [[nodiscard]] const Window* window_with(const at::Tensor& tensor) const;
  [[nodiscard]] std::vector<char*> in_windows(const at::Tensor& tensor) const;
  [[nodiscard]] Window open(std::int64_t bytes);
  void close(const Window& window) noexcept;
  template <class Reach>
  void in_turn(const Reach& reach);
  void gather(const char* mine, const std::vector<char*>& into, std::int64_t bytes);
  template <class ForRank>
  void add(DType dtype, std::int64_t n, const ForRank& for_rank, char* to);
  void sum(const Operation& op, const char* mine, const at::Tensor& to);
  void copy(char* to, const char* from, std::int64_t bytes);
  [[nodiscard]] std::uintptr_t word(int of, int other) const;

  const std::shared_ptr<NcclGroup> group_;
  Communicator& host_;  // of window() alone: windows may outlive it
  const int me_, ranks_;
  std::vector<std::unique_ptr<SharedPage>> pages_;  // by rank
  std::map<const char*, Window> windows_;           // by this rank's memory
  Window slots_;                                    // part r is what rank r sent
  std::uint32_t closed_ = 0;                        // windows that this rank has let go of
  bool stuck_ = false;  // another does not come to let go of its own: memory is left to the process's end
  CudaStream stream_;
};

}  // namespace sc
