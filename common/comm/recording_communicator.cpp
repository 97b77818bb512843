#include "common/comm/recording_communicator.h"

#include <stdexcept>
#include <string>

#include "common/comm/gather_text.h"
#include "common/comm/recorded_ticket.h"

namespace sc {
namespace {

std::vector<Rank> ranks_of(const Communicator& world) {
  std::vector<Rank> ranks;
  for (int r = 0; r < to_int(world.size()); ++r) ranks.push_back(Rank{r});
  return ranks;
}

}  // namespace

Phase phase_from(std::string_view name) {
  for (const Phase phase : {Phase::setup, Phase::train, Phase::eval, Phase::check}) {
    if (name_of(phase) == name) return phase;
  }
  throw std::invalid_argument("there is no phase \"" + std::string(name) + "\"");
}

RecordingCommunicator::RecordingCommunicator(Communicator& inner, const RecordOptions& options)
    : ForwardingCommunicator(inner),
      record_(std::make_shared<CommRecord>(inner.rank(), options)),
      members_(ranks_of(inner)),
      group_(RankSet::of(members_)) {}

RecordingCommunicator::RecordingCommunicator(std::unique_ptr<Communicator> owned,
                                             const RecordOptions& options)
    : ForwardingCommunicator(std::move(owned)),
      record_(std::make_shared<CommRecord>(rank(), options)),
      members_(ranks_of(inner())),
      group_(RankSet::of(members_)) {}

RecordingCommunicator::RecordingCommunicator(std::unique_ptr<Communicator> owned,
                                             std::shared_ptr<CommRecord> record, std::vector<Rank> members)
    : ForwardingCommunicator(std::move(owned)),
      record_(std::move(record)),
      members_(std::move(members)),
      group_(RankSet::of(members_)) {}

// The next collective's number, equal on all ranks because all issue the same collectives in one order.
Meeting RecordingCommunicator::next_collective() { return {group_, {}, ++collectives_}; }

void RecordingCommunicator::set_phase(std::string_view phase) { record_->set_phase(phase_from(phase)); }

CommPlan RecordingCommunicator::recorded(std::string_view phase, std::int64_t step) const {
  return record_->recorded(phase_from(phase), step);
}

template <class Block>
void RecordingCommunicator::record_blocking(Block&& block) {
  const Operation op{CommKind::barrier, DType::u8, Elements(0), size(), stride()};
  const std::int64_t number = record_->issuing(op, Bytes(0), next_collective(), CommRecord::Clock::now());
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
  record_blocking([this] { inner().barrier(); });
}

std::unique_ptr<Communicator> RecordingCommunicator::split(int color) {
  std::unique_ptr<Communicator> part;
  std::vector<Rank> members;
  record_blocking([&] {
    part = inner().split(color);
    const Rank me = members_[static_cast<std::size_t>(to_int(rank()))];  // of the world
    if (part) members = gather_on_all(*part, me, {OpPurpose::addresses});
  });
  if (!part) return nullptr;
  return std::unique_ptr<Communicator>(
      new RecordingCommunicator(std::move(part), record_, std::move(members)));
}

std::shared_ptr<void> RecordingCommunicator::window(Bytes bytes, WindowUse use) {
  std::shared_ptr<void> memory;
  record_blocking([&] { memory = inner().window(bytes, use); });
  return memory;
}

// [anchor: every-operation-recorded]
Ticket RecordingCommunicator::issue(const Operation& op, const at::Tensor& from, const at::Tensor& to,
                                    std::optional<Rank> peer) {
  Operation recorded = op;
  recorded.stride = stride();
  const bool message = op.kind == CommKind::send || op.kind == CommKind::recv;
  const Meeting with =
      message ? Meeting{group_, members_.at(static_cast<std::size_t>(to_int(*peer))), 0} : next_collective();
  try {
    return record_operation(record_, recorded, wire_bytes(op, rank()), with,
                            [&] { return inner().issue(recorded, from, to, peer); });
  } catch (...) {
    if (!message) --collectives_;  // the operation was refused
    throw;
  }
}

}  // namespace sc
