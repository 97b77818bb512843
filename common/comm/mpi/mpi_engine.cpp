#include "common/comm/mpi/mpi_engine.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <exception>

#include "common/base/check.h"
#include "common/base/message.h"
#include "common/comm/communicator.h"
#include "common/comm/mpi/mpi_check.h"

namespace sc {
namespace {

using namespace std::chrono_literals;
constexpr auto kShortestNap = 20us;
constexpr auto kLongestNap = 200us;
constexpr auto kDrainLimit = 5s;
constexpr auto kAbortLimit = 1s;
constexpr int kTags = 32768;  // MPI guarantees tags up to 32767

/// Hands the messages of one slot of an operation to MPI.
class MpiPoster : public Poster {
 public:
  MpiPoster(MpiRequests& requests, MpiOperation& operation, std::size_t slot)
      : requests_(requests), operation_(operation), slot_(slot) {}
  void send(const void* data, Bytes bytes, Rank to, std::int64_t piece) override {
    MPI_Request request = MPI_REQUEST_NULL;
    // MPI_Issend: a message counts as sent only when its receive has begun, however small it is.
    const auto isend = operation_.collective ? MPI_Isend : MPI_Issend;
    SC_CHECK(MpiStatus{isend(data, static_cast<int>(bytes.value()), MPI_BYTE, static_cast<int>(to),
                             tag(piece), comm(), &request)});
    add(request, -1);
  }
  void receive(void* data, Bytes bytes, Rank from, std::int64_t piece) override {
    MPI_Request request = MPI_REQUEST_NULL;
    SC_CHECK(MpiStatus{MPI_Irecv(data, static_cast<int>(bytes.value()), MPI_BYTE, static_cast<int>(from),
                                 tag(piece), comm(), &request)});
    add(request, bytes.value());
  }
  void barrier() override {
    MPI_Request request = MPI_REQUEST_NULL;
    SC_CHECK(MpiStatus{MPI_Ibarrier(comm(), &request)});
    add(request, -1);
  }

 private:
  static int tag(std::int64_t piece) { return static_cast<int>(piece % kTags); }
  [[nodiscard]] MPI_Comm comm() const {
    return operation_.collective ? operation_.group->collectives : operation_.group->messages;
  }
  void add(MPI_Request request, std::int64_t expected) {
    requests_.add(request, {&operation_, slot_, expected});
    ++operation_.slots[slot_].pending;
    ++operation_.pending;
  }
  MpiRequests& requests_;
  MpiOperation& operation_;
  std::size_t slot_;
};

std::optional<std::string> error_of(int error, MPI_Status& status, std::int64_t expected) {
  if (error != MPI_SUCCESS) return StatusTraits<MpiStatus>::text({error});
  if (expected < 0) return std::nullopt;
  int received = 0;
  MPI_Get_count(&status, MPI_BYTE, &received);
  if (received == expected) return std::nullopt;
  return "rank " + std::to_string(status.MPI_SOURCE) + " sent " + std::to_string(received) + " bytes where " +
         std::to_string(expected) + " were expected: the ranks disagree about the operation";
}

}  // namespace

void MpiRequests::add(MPI_Request request, Owner owner) {
  requests_.push_back(request);
  owners_.push_back(owner);
}

std::vector<MpiRequests::Ended> MpiRequests::test() {
  std::vector<Ended> ended;
  if (requests_.empty()) return ended;
  indices_.resize(requests_.size());
  statuses_.resize(requests_.size());
  int count = 0;
  const int result = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                                  indices_.data(), statuses_.data());
  if (result != MPI_ERR_IN_STATUS) SC_CHECK(MpiStatus{result});
  for (int k = 0; k < count; ++k) {
    MPI_Status& status = statuses_[static_cast<std::size_t>(k)];
    const Owner& owner = owners_[static_cast<std::size_t>(indices_[static_cast<std::size_t>(k)])];
    const int error = result == MPI_ERR_IN_STATUS ? status.MPI_ERROR : MPI_SUCCESS;
    ended.push_back({owner, error_of(error, status, owner.expected)});
  }
  std::sort(indices_.begin(), indices_.begin() + count, std::greater<>());
  for (int k = 0; k < count; ++k) {  // the last one fills the gap; gaps are closed from the end
    const auto gap = static_cast<std::size_t>(indices_[static_cast<std::size_t>(k)]);
    requests_[gap] = requests_.back();
    owners_[gap] = owners_.back();
    requests_.pop_back();
    owners_.pop_back();
  }
  return ended;
}

void MpiRequests::cancel_receives_of_messages() {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (owners_[i].expected >= 0 && !owners_[i].operation->collective) MPI_Cancel(&requests_[i]);
  }
}

MpiEngine::MpiEngine() {
  Completion started;
  thread_ = std::thread([this, &started] { run(started); });
  try {
    started.wait();
  } catch (...) {
    thread_.join();
    throw;
  }
}

MpiEngine::~MpiEngine() { stop(); }

void MpiEngine::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool MpiEngine::enqueue(std::function<void()> command) {
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return false;
    commands_.push_back(std::move(command));
  }
  changed_.notify_all();
  return true;
}

void MpiEngine::post(const std::shared_ptr<MpiOperation>& operation) {
  if (!enqueue([this, operation] { begin(operation); }))
    throw AbortedError(operation->text + ": MPI has been ended");
}

void MpiEngine::call(const std::function<void()>& work) {
  Completion done;
  const auto command = [&] {
    std::optional<OpFailure> failure;
    try {
      work();
    } catch (...) {
      failure = failure_from_current_exception();
    }
    done.finish(failure);
  };
  if (!enqueue(command)) throw AbortedError("MPI has been ended");
  done.wait();
}

void MpiEngine::abort_group(MpiGroup& group) noexcept {
  group.aborted->set = true;
  (void)enqueue([this] { fail_aborted(); });
}

void MpiEngine::abort_job(int exit_code) noexcept {
  {
    const std::lock_guard lock(mutex_);
    abort_code_ = exit_code;
  }
  changed_.notify_all();
  std::this_thread::sleep_for(kAbortLimit);  // MPI_Abort ends the process before this returns
  ::_exit(exit_code);
}

void MpiEngine::run(Completion& started) {
  // This thread naps for 20 us, which needs a timer slack below Linux's default of 50 us.
  ::prctl(PR_SET_TIMERSLACK, 1000UL, 0, 0, 0);
  try {
    int provided = 0;
    SC_CHECK(MpiStatus{MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided)});
    if (provided < MPI_THREAD_FUNNELED)
      throw DeviceError("this MPI cannot be called from a thread (MPI_THREAD_FUNNELED)");
    SC_CHECK(MpiStatus{MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN)});
  } catch (...) {
    started.fail(failure_from_current_exception());
    return;
  }
  started.finish();
  try {
    work_until_stopped();
    drain();
    if (!leave_badly_) MPI_Finalize();
  } catch (const std::exception& error) {  // MPI itself fails, so the other ranks cannot be told
    say_error(std::string("the thread that speaks to MPI failed: ") + error.what());
    ::_exit(static_cast<int>(ExitCode::lost_rank));
  }
}

void MpiEngine::work_until_stopped() {
  while (true) {
    bool moved = take_commands();
    moved |= take_ended_requests();
    if (abort_code_ != 0) MPI_Abort(MPI_COMM_WORLD, abort_code_);
    if (moved) {
      nap_ = kShortestNap;
      continue;
    }
    {
      const std::lock_guard lock(mutex_);
      if (stop_ && commands_.empty()) return;
    }
    idle();
  }
}

void MpiEngine::idle() {
  std::unique_lock lock(mutex_);
  const auto woken = [this] { return stop_ || !commands_.empty() || abort_code_ != 0; };
  if (requests_.empty()) {
    changed_.wait(lock, woken);
  } else {
    changed_.wait_for(lock, nap_, woken);
    nap_ = std::min<std::chrono::microseconds>(2 * nap_, kLongestNap);
  }
}

bool MpiEngine::take_commands() {
  std::deque<std::function<void()>> commands;
  {
    const std::lock_guard lock(mutex_);
    commands.swap(commands_);
  }
  for (const auto& command : commands) command();
  return !commands.empty();
}

bool MpiEngine::take_ended_requests() {
  const std::vector<MpiRequests::Ended> ended = requests_.test();
  for (const MpiRequests::Ended& end : ended) {
    MpiOperation& operation = *end.owner.operation;
    --operation.slots[end.owner.slot].pending;
    --operation.pending;
    if (end.error) fail(operation, {OpFailure::Kind::device, operation.text, *end.error});
  }
  // Operations are moved on only after this loop: one that ends is destroyed, and another of its requests may
  // still be in the list.
  std::vector<MpiOperation*> moved;
  for (const MpiRequests::Ended& end : ended) {
    if (std::find(moved.begin(), moved.end(), end.owner.operation) == moved.end())
      moved.push_back(end.owner.operation);
  }
  for (MpiOperation* operation : moved) proceed(*operation);
  return !ended.empty();
}

void MpiEngine::begin(std::shared_ptr<MpiOperation> operation) {
  operations_.push_back(std::move(operation));
  MpiOperation& op = *operations_.back();
  if (op.group->aborted->is_set()) {
    tell(op, {OpFailure::Kind::aborted, op.text, "the group was aborted"});
  } else if (op.collective && op.group->broken) {
    tell(op, *op.group->broken);
  } else if (op.collective) {
    op.group->queue.push_back(&op);
    if (op.group->queue.size() > 1) return;
  }
  if (!op.failed) start_exchange(op);
  proceed(op);
}

void MpiEngine::start_exchange(MpiOperation& op) {
  op.ended_pieces = 0;
  if (op.exchange == op.exchanges.size()) return;
  const Exchange& exchange = op.exchanges[op.exchange];
  op.slots.assign(static_cast<std::size_t>(std::min(exchange.in_flight, exchange.pieces)), {});
  for (std::size_t i = 0; i < op.slots.size(); ++i) op.slots[i].piece = static_cast<std::int64_t>(i);
}

// Advances an operation as far as possible without waiting, and after it the collectives queued behind it.
void MpiEngine::proceed(MpiOperation& operation) {
  MpiOperation* op = &operation;
  while (op != nullptr) {
    if (!op->failed) {
      try {
        if (!proceed_pieces(*op)) return;
        op->first = op->second = at::Tensor();  // dropped before any rank returns from wait()
        op->end->finish();
      } catch (...) {
        fail(*op, failure_from_current_exception());
      }
    }
    if (op->failed && op->pending > 0) return;  // MPI still writes into its memory
    const std::shared_ptr<MpiGroup> group = op->group;
    const bool was_front = op->collective && !group->queue.empty() && group->queue.front() == op;
    std::erase(group->queue, op);
    operations_.remove_if([&](const auto& one) { return one.get() == op; });
    op = was_front && !group->queue.empty() ? group->queue.front() : nullptr;
    if (op != nullptr && !op->failed) start_exchange(*op);
  }
}

// Advances the exchanges of an operation as far as possible. True when all have ended.
bool MpiEngine::proceed_pieces(MpiOperation& op) {
  while (op.exchange < op.exchanges.size()) {
    const Exchange& exchange = op.exchanges[op.exchange];
    for (std::size_t i = 0; i < op.slots.size(); ++i) {
      MpiOperation::Slot& slot = op.slots[i];
      MpiPoster poster(requests_, op, i);
      while (slot.pending == 0 && slot.piece < exchange.pieces) {
        if (exchange.post(slot.piece, slot.stage, poster)) {
          ++slot.stage;
          continue;
        }
        ++op.ended_pieces;
        slot.piece += static_cast<std::int64_t>(op.slots.size());
        slot.stage = 0;
      }
    }
    if (op.ended_pieces < exchange.pieces) return false;
    ++op.exchange;
    start_exchange(op);
  }
  return true;
}

void MpiEngine::tell(MpiOperation& operation, const OpFailure& failure) {
  operation.failed = true;
  operation.end->fail(failure);
}

// Fails an operation. A failed collective leaves its group out of step: all its later collectives fail.
void MpiEngine::fail(MpiOperation& operation, const OpFailure& failure) {
  if (operation.failed) return;
  tell(operation, failure);
  if (!operation.collective) return;
  operation.group->broken = failure;
  for (MpiOperation* queued : operation.group->queue) tell(*queued, failure);
}

void MpiEngine::fail_aborted() {
  for (const auto& operation : operations_) {
    if (operation->group->aborted->is_set()) {
      tell(*operation, {OpFailure::Kind::aborted, operation->text, "the group was aborted"});
    }
  }
}

// Finishes for up to 5 s what is in flight when the program ends, because other ranks may depend on it.
// Operations of an aborted group never end; their memory stays until MPI has ended.
void MpiEngine::drain() {
  requests_.cancel_receives_of_messages();
  const auto limit = std::chrono::steady_clock::now() + kDrainLimit;
  const auto alive = [](const auto& operation) { return !operation->failed; };
  while (!leave_badly_ && std::any_of(operations_.begin(), operations_.end(), alive)) {
    if (!take_ended_requests()) std::this_thread::sleep_for(kLongestNap);
    if (std::chrono::steady_clock::now() > limit) leave_badly_ = true;
  }
}

}  // namespace sc
