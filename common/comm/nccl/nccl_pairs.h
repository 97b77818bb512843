// Messages between GPUs: one channel a directed pair, made by both sides when they first use it. Internal to
// comm.
#pragma once

#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "common/comm/communicator.h"
#include "common/comm/nccl/nccl_channel.h"
#include "common/comm/nccl/nccl_ticket.h"

namespace sc {

/// A message that somebody wants to issue.
struct NcclMessage {
  std::shared_ptr<NcclOperation> operation;
  EventLease start;  // after the caller's work
  NcclChannel::Call call;
  at::Tensor tensor;  // alive while the message is in a queue
};

/// By copy engine (PeerChannel) where the receiver can open the sender's memory, else over NCCL.
/// The first messages of a pair wait until both sides are there: the sender makes NCCL's id, or its end of
/// the channel, and sends what the other side needs over `host` as a message of the same pair, so that it
/// meets its receiver in issue order, too. A thread, which lives as long as any pair is on its way, connects
/// them all at once, so that no order of first messages can deadlock; afterwards messages go straight to the
/// stream.
class NcclPairs {
 public:
  /// by_copy: whether a message from that rank to that rank is left to copy engines; all ranks say the same.
  NcclPairs(std::shared_ptr<NcclGroup> group, Communicator& host,
            std::function<bool(Rank from, Rank to)> by_copy);
  /// Messages that still wait fail. Waits for the other sides: NCCL ends a pair when both destroy it.
  ~NcclPairs();

  enum class Way : bool { to, from };
  /// Errors: DeviceError in a capture, if the pair is not connected.
  void post(Way way, Rank peer, NcclMessage message, bool captured);

 private:
  struct Pair;
  using Key = std::pair<Rank, Rank>;  // sender, receiver
  Key key_of(Way way, Rank peer) const;
  Pair& find_or_open(Way way, Rank peer);
  void connect_all(const std::stop_token& stop);
  bool advance(Pair& pair);
  bool drain(Pair& pair);
  static void fail(Pair& pair);

  const std::shared_ptr<NcclGroup> group_;
  Communicator& host_;
  const std::function<bool(Rank, Rank)> by_copy_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, std::unique_ptr<Pair>> pairs_;
  bool connecting_ = false;
  std::jthread thread_;
};

}  // namespace sc
