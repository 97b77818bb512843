#include "streamed_update.h"

#include <algorithm>

namespace sc {

StateFile::StateFile(std::shared_ptr<FileOps> file_ops, const BlockFile::Options& options,
                     const std::vector<Bytes>& extents, std::shared_ptr<CommRecord> record)
    : ops(std::move(file_ops)),
      blocks(*ops, options, extents),
      transfers(blocks, std::move(record),
                [this](CommKind kind, DiskTransfer::Clock::time_point issued, DiskTransfer transfer) {
                  clock.issued(kind, issued, std::move(transfer));
                }) {}

StreamedUpdate::StreamedUpdate(std::vector<Piece> pieces, StateWindow window, std::unique_ptr<StateFile> file,
                               std::unique_ptr<ParamHome> home, const Setting& setting)
    : PieceUpdates(std::move(pieces)),
      context_(setting.context),
      hyper_(setting.hyper),
      delivery_(home                               ? Delivery::by_gathers
                : pieces_.front().params.defined() ? Delivery::once_a_step
                                                   : Delivery::from_window),
      window_(std::move(window)),
      file_(std::move(file)),
      home_(std::move(home)),
      read_(window_.states.size()),
      written_(window_.states.size()),
      stored_(window_.states.size()),
      landed_(window_.states.size()),
      states_(pieces_.size()),
      pool_(setting.threads) {
  write_first_values(setting.first_values);
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

StreamedUpdate::~StreamedUpdate() {
  thread_.request_stop();
  changed_.notify_all();
}

void StreamedUpdate::write_first_values(const std::function<void(std::size_t, at::Tensor&)>& first_values) {
  std::vector<DiskTransfer> writes(window_.states.size());
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const auto number = static_cast<std::int64_t>(i);
    DiskTransfer& before = writes[buffer_of(number)];
    before.wait();
    at::Tensor states = window_.states[buffer_of(number)];
    states.zero_();
    at::Tensor master = vectors(number).master;
    first_values(i, master);
    at::Tensor params = home_                         ? home_->landing(i, 0, buffer_of(number))
                        : pieces_[i].params.defined() ? pieces_[i].params
                                                      : pieces_[i].on_device;
    params.copy_(master);
    if (home_) home_->keep_first_values(i, buffer_of(number));
    before = file_->blocks.write(i, bytes(number));
  }
  for (DiskTransfer& write : writes) write.wait();
}

void StreamedUpdate::post(UpdateOrder order) {
  give_first_buffer_back();
  {
    const std::lock_guard lock(mutex_);
    orders_.push_back(std::move(order));
    ++posted_;
    idle_ = false;
  }
  changed_.notify_all();
}

// [anchor: gradients-when-it-is-their-turn]
// Where gradients wait on the device they come down a window ahead of the update. The strategy's thread issues these
// copies, in forward, or before it where an evaluation or a save needs what the update makes: the step's either way.
void StreamedUpdate::land_gradients(std::int64_t number) {
  const auto pieces = static_cast<std::int64_t>(pieces_.size());
  const std::int64_t last =
      std::min(number + static_cast<std::int64_t>(window_.states.size()), posted_ * pieces) - 1;
  for (; next_landing_ <= last;) {
    const Piece& piece = pieces_[piece_of(next_landing_)];
    const std::size_t buffer = buffer_of(next_landing_);
    at::Tensor landing = window_.grads[buffer].narrow(0, 0, piece.range.size());
    Ticket ticket = context_.copies.to_host(piece.grads_on_device, landing, step_of(next_landing_));
    const OpEnd end = ticket.end();
    keep(update_of(next_landing_), std::move(ticket));
    {
      const std::lock_guard lock(mutex_);
      landed_[buffer] = end;
      ++next_landing_;
    }
    changed_.notify_all();
  }
}

bool StreamedUpdate::ready(std::size_t piece, std::int64_t updates) {
  const std::lock_guard lock(mutex_);
  return !error_ && states_[piece].updates >= updates;
}

std::shared_ptr<const HostPiece> StreamedUpdate::wait(std::size_t piece, std::int64_t updates) {
  const std::int64_t number = number_of(piece, updates);
  if (!window_.grads.empty() && updates > 0) land_gradients(number);
  const auto began = StepClock::Clock::now();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return error_ || states_[piece].updates >= updates; });
  file_->clock.waited(began, StepClock::Clock::now());
  if (error_) std::rethrow_exception(error_);
  return states_[piece].work;
}

std::optional<std::int64_t> StreamedUpdate::step_of_sending(std::size_t piece, std::int64_t updates) {
  if (!sends_from_window()) return {};
  return step_of(number_of(piece, updates));
}

bool StreamedUpdate::to_send(std::size_t piece, std::int64_t updates) {
  const std::lock_guard lock(mutex_);
  if (delivery_ != Delivery::from_window) return delivery_ == Delivery::once_a_step;
  return states_[piece].sends < updates;
}

at::Tensor StreamedUpdate::params(std::size_t piece, std::int64_t updates) {
  if (home_) {
    const auto began = StepClock::Clock::now();
    at::Tensor params = home_->bring(piece, updates);
    file_->clock.waited(began, StepClock::Clock::now());
    return params;
  }
  if (!sends_from_window()) return pieces_[piece].params;
  const std::lock_guard lock(mutex_);
  const std::int64_t number = number_of(piece, states_[piece].updates);
  if (window_.params.empty()) return vectors(number).master;
  return window_.params[buffer_of(number)].narrow(0, 0, pieces_[piece].range.size());
}

void StreamedUpdate::expect(const std::vector<std::size_t>& pieces) { home_->expect(pieces); }

void StreamedUpdate::sent(std::size_t piece, OpEnd end, bool in_step) {
  if (home_) return home_->sent(std::move(end));
  if (!in_step && !sends_from_window()) return;
  {
    const std::lock_guard lock(mutex_);
    ++states_[piece].sends;
    states_[piece].sent = std::move(end);
  }
  changed_.notify_all();
}

void StreamedUpdate::begin_step() {
  give_first_buffer_back();
  {
    const std::lock_guard lock(mutex_);
    ++steps_begun_;
  }
  changed_.notify_all();
}

void StreamedUpdate::release() {
  give_first_buffer_back();
  {
    const std::lock_guard lock(mutex_);
    released_ = true;
  }
  changed_.notify_all();
}

// What is counted as a step's has ended when the step has.
void StreamedUpdate::end_step() {
  std::vector<Transfers> ended;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return error_ || done_ == posted_; });
    if (error_) std::rethrow_exception(error_);
    const auto later = std::stable_partition(kept_.begin(), kept_.end(),
                                             [&](const Transfers& t) { return t.update >= posted_; });
    std::move(later, kept_.end(), std::back_inserter(ended));
    kept_.erase(later, kept_.end());
  }
  for (Transfers& transfers : ended)
    for (Ticket& ticket : transfers.tickets) ticket.wait_on_host();
  file_->clock.end_step();
}

void StreamedUpdate::keep(std::int64_t update, Ticket ticket) {
  const std::lock_guard lock(mutex_);
  if (kept_.empty() || kept_.back().update != update) {
    const auto found = std::ranges::find(kept_, update, &Transfers::update);
    if (found != kept_.end()) return found->tickets.push_back(std::move(ticket));
    kept_.push_back({.update = update, .tickets = {}});
  }
  kept_.back().tickets.push_back(std::move(ticket));
}

StreamedUpdate::Vectors StreamedUpdate::vectors(std::int64_t number) const {
  const at::Tensor& states = window_.states[buffer_of(number)];
  const std::int64_t n = pieces_[piece_of(number)].range.size();
  return {states.narrow(0, 0, n), states.narrow(0, n, n), states.narrow(0, 2 * n, n)};
}

std::span<std::byte> StreamedUpdate::bytes(std::int64_t number) const {
  return {static_cast<std::byte*>(window_.states[buffer_of(number)].mutable_data_ptr()),
          static_cast<std::size_t>(file_->blocks.extent_bytes(piece_of(number)).value())};
}

}  // namespace sc
