#include "common/comm/recording_communicator.h"

#include <stdexcept>
#include <string>

#include "common/comm/op_check.h"

namespace sc {
namespace {

/// Tells the record when the operation is waited for. The record asks `inner` from the watchdog's thread, so
/// the state is taken out of the record before it goes, and it goes on the thread that owns the ticket.
class RecordedTicket : public TicketState {
 public:
  RecordedTicket(std::unique_ptr<TicketState> inner, std::shared_ptr<CommRecord> record, std::int64_t number)
      : inner_(std::move(inner)), record_(std::move(record)), number_(number) {}
  ~RecordedTicket() override {
    if (!waited_) record_->forget(number_);
  }
  bool ready() override { return inner_->ready(); }
  void wait() override {
    record_->wait_began(number_);
    waited_ = true;
    std::function<bool()> ended = inner_->ended_later();
    try {
      inner_->wait();
    } catch (...) {
      record_->wait_ended(number_, inner_->ended_at());
      throw;
    }
    record_->wait_ended(number_, inner_->ended_at(), std::move(ended), inner_->gpu_times());
  }
  void dropped() noexcept override { inner_->dropped(); }
  std::function<bool()> ended_later() override { return inner_->ended_later(); }
  GpuTimes gpu_times() override { return inner_->gpu_times(); }
  std::optional<std::chrono::steady_clock::time_point> ended_at() override { return inner_->ended_at(); }

 private:
  std::unique_ptr<TicketState> inner_;
  std::shared_ptr<CommRecord> record_;
  std::int64_t number_;
  bool waited_ = false;
};

}  // namespace

Phase phase_from(std::string_view name) {
  for (const Phase phase : {Phase::setup, Phase::train, Phase::eval, Phase::check}) {
    if (name_of(phase) == name) return phase;
  }
  throw std::invalid_argument("there is no phase \"" + std::string(name) + "\"");
}

RecordingCommunicator::RecordingCommunicator(Communicator& inner, const RecordOptions& options)
    : inner_(&inner), record_(std::make_shared<CommRecord>(inner.rank(), options)) {}

RecordingCommunicator::RecordingCommunicator(std::unique_ptr<Communicator> inner,
                                             const RecordOptions& options)
    : RecordingCommunicator(*inner, options) {
  owned_ = std::move(inner);
}

RecordingCommunicator::RecordingCommunicator(std::unique_ptr<Communicator> inner,
                                             std::shared_ptr<CommRecord> record)
    : owned_(std::move(inner)), inner_(owned_.get()), record_(std::move(record)) {}

void RecordingCommunicator::set_phase(std::string_view phase) { record_->set_phase(phase_from(phase)); }

CommPlan RecordingCommunicator::recorded(std::string_view phase, std::int64_t step) const {
  return record_->recorded(phase_from(phase), step);
}

template <class Issue>
Ticket RecordingCommunicator::record_op(const CommOp& op, std::optional<Rank> peer, Issue&& issue) {
  const std::int64_t number =
      record_->issuing(op, wire_bytes(op, size(), rank()), peer, CommRecord::Clock::now());
  std::unique_ptr<TicketState> state;
  try {
    state = issue().release();
  } catch (...) {
    record_->withdrawn(number);
    throw;
  }
  TicketState* inner = state.get();  // null: it ended before the ticket was written
  record_->issued(number, [inner] { return inner == nullptr || inner->ready(); });
  if (!state) {
    record_->forget(number);
    return Ticket();
  }
  return Ticket(std::make_unique<RecordedTicket>(std::move(state), record_, number));
}

template <class Block>
void RecordingCommunicator::record_blocking(Block&& block) {
  const CommOp op{CommKind::barrier, DType::u8, Elements(0)};
  const std::int64_t number = record_->issuing(op, Bytes(0), {}, CommRecord::Clock::now());
  record_->wait_began(number);
  try {
    block();
  } catch (...) {
    record_->wait_ended(number, CommRecord::Clock::now());
    throw;
  }
  record_->wait_ended(number, CommRecord::Clock::now());
}

void RecordingCommunicator::barrier() {
  record_blocking([this] { inner_->barrier(); });
}

std::unique_ptr<Communicator> RecordingCommunicator::split(int color) {
  std::unique_ptr<Communicator> part;
  record_blocking([&] { part = inner_->split(color); });
  if (!part) return nullptr;
  return std::unique_ptr<Communicator>(new RecordingCommunicator(std::move(part), record_));
}

std::shared_ptr<void> RecordingCommunicator::window(Bytes bytes) {
  std::shared_ptr<void> memory;
  record_blocking([&] { memory = inner_->window(bytes); });
  return memory;
}

Ticket RecordingCommunicator::all_reduce(at::Tensor& t) {
  return record_op(check_all_reduce({rank(), size()}, t), {}, [&] { return inner_->all_reduce(t); });
}

Ticket RecordingCommunicator::reduce_scatter(const at::Tensor& full, at::Tensor& shard) {
  return record_op(check_reduce_scatter({rank(), size()}, full, shard), {},
                   [&] { return inner_->reduce_scatter(full, shard); });
}

Ticket RecordingCommunicator::all_gather(const at::Tensor& shard, at::Tensor& full) {
  return record_op(check_all_gather({rank(), size()}, shard, full), {},
                   [&] { return inner_->all_gather(shard, full); });
}

Ticket RecordingCommunicator::broadcast(at::Tensor& t, Rank root) {
  return record_op(check_broadcast({rank(), size()}, t, root), {},
                   [&] { return inner_->broadcast(t, root); });
}

Ticket RecordingCommunicator::send(const at::Tensor& t, Rank to) {
  return record_op(check_send({rank(), size()}, t, to), to, [&] { return inner_->send(t, to); });
}

Ticket RecordingCommunicator::recv(at::Tensor& t, Rank from) {
  return record_op(check_recv({rank(), size()}, t, from), from, [&] { return inner_->recv(t, from); });
}

}  // namespace sc
