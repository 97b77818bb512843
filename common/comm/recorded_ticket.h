// The ticket of an operation that is entered in a record. Internal to comm.
#pragma once

#include <memory>
#include <utility>

#include "common/comm/communicator.h"
#include "common/watch/comm_record.h"

namespace sc {

/// Reports to the record when an operation is waited for. The watchdog's thread asks `inner` through the
/// record, so the ticket's own thread withdraws the state from the record before destroying it.
class RecordedTicket : public TicketState {
 public:
  RecordedTicket(std::unique_ptr<TicketState> inner, std::shared_ptr<CommRecord> record, std::int64_t number)
      : inner_(std::move(inner)), record_(std::move(record)), number_(number) {}
  ~RecordedTicket() override {
    if (!waited_) record_->forget(number_);
  }
  bool ready() override { return inner_->ready(); }
  void wait() override { wait_by(&TicketState::wait); }
  void wait_on_host() override { wait_by(&TicketState::wait_on_host); }
  void dropped() noexcept override { inner_->dropped(); }
  OpEnd end() override { return inner_->end(); }

 private:
  void wait_by(void (TicketState::*wait)()) {
    record_->wait_began(number_);
    waited_ = true;
    std::function<bool()> ended = inner_->ended_later();
    try {
      (inner_.get()->*wait)();
    } catch (...) {
      record_->wait_ended(number_, inner_->ended_at());
      throw;
    }
    record_->wait_ended(number_, inner_->ended_at(), std::move(ended), inner_->gpu_times());
  }

  std::unique_ptr<TicketState> inner_;
  std::shared_ptr<CommRecord> record_;
  std::int64_t number_;
  bool waited_ = false;
};

/// Issues an operation and enters it in the record; a refused operation is not counted.
template <class Issue>
Ticket record_operation(const std::shared_ptr<CommRecord>& record, const Operation& op, Bytes sent,
                        const Meeting& with, Issue&& issue, std::optional<std::int64_t> of_step = {}) {
  const std::int64_t number = record->issuing(op, sent, with, CommRecord::Clock::now(), of_step);
  std::unique_ptr<TicketState> state;
  try {
    state = issue().release();
  } catch (...) {
    record->withdrawn(number);
    throw;
  }
  TicketState* inner = state.get();  // null if the operation ended while it was issued
  record->issued(number, [inner] { return inner == nullptr || inner->ready(); });
  if (!state) {
    record->forget(number);
    return Ticket();
  }
  return Ticket(std::make_unique<RecordedTicket>(std::move(state), record, number));
}

}  // namespace sc
