#include "common/comm/nccl/nccl_pairs.h"

#include <ATen/ops/empty.h>

#include <cstring>
#include <optional>

#include "common/comm/nccl/cuda_check.h"
#include "common/comm/nccl/peer_channel.h"

namespace sc {

using namespace std::chrono_literals;

struct NcclPairs::Pair {
  enum class Stage { id, join, first_messages, connected };
  Way way = Way::to;
  Stage stage = Stage::id;
  bool by_copy = false;
  at::Tensor id;  // u8 on the host: NCCL's id or a PeerChannel::Hello
  Ticket id_travels;
  std::shared_ptr<NcclChannel> channel;
  std::shared_ptr<PeerChannel> copies;  // used instead of `channel`
  std::deque<NcclMessage> queue;
  bool front_begun = false;
  std::optional<OpFailure> failure;  // why it could not be connected
};

NcclPairs::NcclPairs(std::shared_ptr<NcclGroup> group, Communicator& host,
                     std::function<bool(Rank, Rank)> by_copy)
    : group_(std::move(group)), host_(host), by_copy_(std::move(by_copy)) {}

NcclPairs::~NcclPairs() {
  thread_ = {};  // stops the thread within one nap
  // Pairs are destroyed by sender, then receiver: the same order on every rank. ncclCommDestroy waits for the
  // other rank, so two ranks that began with different pairs would wait for each other.
  for (auto& [key, pair] : pairs_) {
    for (NcclMessage& message : pair->queue) {
      message.operation->failed({OpFailure::Kind::aborted, message.operation->text(),
                                 "the communicator ended before the other rank came"});
    }
    (void)pair->id_travels.release();  // a receive that is never answered; MPI cancels it at its end
    pair.reset();
  }
}

NcclPairs::Key NcclPairs::key_of(Way way, Rank peer) const {
  return way == Way::to ? Key{group_->rank, peer} : Key{peer, group_->rank};
}

NcclPairs::Pair& NcclPairs::find_or_open(Way way, Rank peer) {
  const Key key = key_of(way, peer);
  if (const auto known = pairs_.find(key); known != pairs_.end()) return *known->second;
  auto made = std::make_unique<Pair>();
  made->way = way;
  made->by_copy = by_copy_(key.first, key.second);
  const std::size_t bytes = made->by_copy ? sizeof(PeerChannel::Hello) : NCCL_UNIQUE_ID_BYTES;
  made->id = at::empty({static_cast<std::int64_t>(bytes)}, at::kByte);
  if (way == Way::to && made->by_copy) {
    made->copies = std::make_shared<PeerChannel>(group_);
    group_->add(made->copies);
    const PeerChannel::Hello hello = made->copies->hello();
    std::memcpy(made->id.mutable_data_ptr(), &hello, sizeof hello);
  } else if (way == Way::to) {
    SC_CHECK(ncclGetUniqueId(static_cast<ncclUniqueId*>(made->id.mutable_data_ptr())));
  }
  const What address{OpPurpose::addresses};
  made->id_travels =
      way == Way::to ? host_.send(made->id, peer, address) : host_.recv(made->id, peer, address);
  if (!made->by_copy) {
    made->channel = std::make_shared<NcclChannel>(
        group_, "rank " + std::to_string(to_int(group_->rank)) +
                    (way == Way::to ? ": messages to rank " : ": messages from rank ") +
                    std::to_string(to_int(peer)));
    group_->add(made->channel);
  }
  Pair& pair = *(pairs_[key] = std::move(made));
  if (!connecting_) {
    connecting_ = true;  // the old thread has nothing left to do and needs no lock any more
    thread_ = std::jthread([this](const std::stop_token& stop) { connect_all(stop); });
  }
  return pair;
}

void NcclPairs::post(Way way, Rank peer, NcclMessage message, bool captured) {
  const std::lock_guard lock(mutex_);
  const auto known = pairs_.find(key_of(way, peer));
  const bool connected = known != pairs_.end() && known->second->stage == Pair::Stage::connected;
  if (captured && !connected) {
    throw DeviceError(message.operation->text() +
                      ": a pair's first message cannot be captured in a graph; send one before");
  }
  Pair& pair = find_or_open(way, peer);
  if (pair.failure) pair.failure->raise();
  if (connected) {
    NcclEnd end = pair.copies ? pair.copies->issue(message.start, message.tensor)
                              : pair.channel->issue(message.start, message.call);
    message.operation->issued(pair.channel, std::move(end), captured);
    return;
  }
  pair.queue.push_back(std::move(message));
  changed_.notify_all();
}

void NcclPairs::connect_all(const std::stop_token& stop) {
  (void)cudaSetDevice(group_->device);
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    bool busy = false;
    for (auto& [key, pair] : pairs_) {
      if (pair->stage != Pair::Stage::connected) busy |= !advance(*pair);
    }
    if (!busy) break;
    changed_.wait_for(lock, 1ms);
  }
  connecting_ = false;
}

// Advances a pair by one step without waiting for the other side. True when it is connected and has no queue.
bool NcclPairs::advance(Pair& pair) {
  try {
    switch (pair.stage) {
      case Pair::Stage::id: {
        // A sender by copy engine is ready once its Hello has been issued; it need not have arrived.
        if ((pair.way == Way::from || pair.by_copy) && !pair.id_travels.ready()) return false;
        if (pair.way == Way::from || pair.by_copy) pair.id_travels.wait();
        if (pair.by_copy) {
          PeerChannel::Hello hello;
          std::memcpy(&hello, pair.id.const_data_ptr(), sizeof hello);
          if (pair.way == Way::from) {
            pair.copies = std::make_shared<PeerChannel>(group_, hello);
            group_->add(pair.copies);
          }
          pair.stage = Pair::Stage::first_messages;
          return false;
        }
        ncclUniqueId id;
        std::memcpy(&id, pair.id.const_data_ptr(), sizeof id);
        pair.channel->begin_join(id, pair.way == Way::to ? 0 : 1, 2);
        pair.stage = Pair::Stage::join;
        return false;
      }
      case Pair::Stage::join:
        if (!pair.channel->accepted()) return false;
        if (pair.way == Way::to) pair.id_travels.wait();  // the other side has received it
        pair.stage = Pair::Stage::first_messages;
        return false;
      case Pair::Stage::first_messages:
        if (!drain(pair)) return false;
        pair.stage = Pair::Stage::connected;
        return true;
      case Pair::Stage::connected:
        return true;
    }
  } catch (...) {
    fail(pair);
  }
  return true;
}

bool NcclPairs::drain(Pair& pair) {
  while (!pair.queue.empty()) {
    NcclMessage& message = pair.queue.front();
    NcclEnd end;
    if (pair.copies) {
      end = pair.copies->issue(message.start, message.tensor);
    } else {
      if (!pair.front_begun) pair.channel->begin(message.start, message.call);
      pair.front_begun = true;
      if (!pair.channel->accepted()) return false;
      pair.front_begun = false;
      end = pair.channel->end();
    }
    const std::shared_ptr<NcclOperation> operation = message.operation;
    pair.queue.pop_front();  // drops the tensor before anybody returns from wait()
    operation->issued(pair.channel, std::move(end), false);
  }
  return true;
}

// Makes the queued messages of a pair fail, and every later one.
void NcclPairs::fail(Pair& pair) {
  const OpFailure failure = failure_from_current_exception();
  for (NcclMessage& message : pair.queue) message.operation->failed(failure);
  pair.queue.clear();
  pair.failure = failure;
  pair.stage = Pair::Stage::connected;
}

}  // namespace sc
