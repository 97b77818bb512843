// Messages between GPUs: one channel per directed pair, made at its first use. Internal to comm.
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

/// A message before NCCL or a copy engine is given it.
struct NcclMessage {
  std::shared_ptr<NcclOperation> operation;
  EventLease start;  // recorded after the caller's work
  NcclChannel::Call call;
  at::Tensor tensor;  // keeps the memory alive while the message is queued
};

/// Sends messages by copy engine (PeerChannel) if the receiver can open the sender's memory, otherwise over
/// NCCL. The first messages of a pair wait until both sides are there: the sender makes NCCL's id, or its end
/// of the channel, and sends what the receiver needs over `host` as a message of the same pair, so that it
/// matches in issue order. While any pair is being connected, one thread connects all of them at once, so
/// that no order of first messages can deadlock. Later messages go straight to the stream.
class NcclPairs {
 public:
  /// `by_copy` says whether messages from one rank to another use copy engines, the same on all ranks.
  NcclPairs(std::shared_ptr<NcclGroup> group, Communicator& host,
            std::function<bool(Rank from, Rank to)> by_copy);
  /// Makes waiting messages fail. Waits for the other sides, because NCCL ends a pair only on both sides.
  ~NcclPairs();

  enum class Way : bool { to, from };
  /// Issues the message, or queues it until the pair is connected.
  ///   Errors  DeviceError in a graph capture, if the pair is not connected.
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
