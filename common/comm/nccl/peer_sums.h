// Sums and gathers of a group of ranks on GPUs of one host, by copy engine: no multiprocessor waits for data
// or carries it, and one small kernel adds. Internal to comm.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <vector>

#include "common/comm/communicator.h"
#include "common/comm/nccl/nccl_channel.h"
#include "common/comm/nccl/shared_page.h"

namespace sc {

/// A window is memory that every rank of the group has opened. Pushing is faster than pulling: in a gather,
/// each rank copies its part into the others' windows; in a sum, each rank copies the others' parts into
/// their slots, and they add. For each pair of ranks a word in host memory, which all ranks have mapped and
/// all GPUs' streams wait for and write, says that the other rank may write, and then that it has written.
///   Sums     in fp32, ((r0 + r1) + r2) + ... on every rank, rounded once, as Communicator promises.
///   Graphs   as in PeerChannel: a word has the same value before and after an operation.
///   Memory   slots as long as the longest window, on this rank's GPU, outside the ledger.
class PeerSums : public Abortable, public std::enable_shared_from_this<PeerSums> {
 public:
  static constexpr int kMostRanks = 16;
  /// Opens no window yet. Collective over `host`, which has at most kMostRanks ranks, all within reach of
  /// each other (peers_within_reach).
  PeerSums(std::shared_ptr<NcclGroup> group, Communicator& host);
  /// Waits up to 5 s for operations to end, then releases those that wait, as ~PeerChannel does.
  ~PeerSums() override;

  /// Makes a window for sums, as Communicator::window does.
  ///   Errors  InputError(missing) if the GPU has no such memory left.
  std::shared_ptr<void> window(Bytes bytes);
  /// Whether copy engines can carry out the operation: an all_gather into a window; a reduce_scatter out of
  /// one; or, once there was a window, an all_reduce. In an all_reduce of t ranks with equal parts in a
  /// window, each rank sends (t-1)/t twice; in any other, everything to each other rank.
  [[nodiscard]] bool can(const Operation& op, const at::Tensor& from, const at::Tensor& to) const;
  NcclEnd issue(const EventLease& start, const Operation& op, const at::Tensor& from, const at::Tensor& to);
  /// Ends the waits of all operations, as PeerChannel::abort() does.
  void abort() noexcept override;

 private:
  /// The memory of each rank, opened here; this rank's own is among them.
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
  Communicator& host_;  // used by window() alone, since windows may outlive it
  const int me_, ranks_;
  std::vector<std::unique_ptr<SharedPage>> pages_;  // by rank
  std::map<const char*, Window> windows_;           // by the address of this rank's memory
  Window slots_;                                    // part r is what rank r sent
  std::uint32_t closed_ = 0;                        // how many windows this rank has released
  bool stuck_ = false;  // another rank does not release its own, so memory is left until the process ends
  CudaStream stream_;
};

}  // namespace sc
