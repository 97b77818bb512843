// The thread of a StreamedUpdate: what it reads, updates and writes, and what it waits for.
#include <c10/core/InferenceMode.h>

#include <algorithm>

#include "common/memory/ledger.h"
#include "streamed_update.h"

namespace sc {

void StreamedUpdate::run(const std::stop_token& stop) {
  const c10::InferenceMode inference;
  try {
    while (true) {
      UpdateOrder order;
      {
        std::unique_lock lock(mutex_);
        if (!changed_.wait(lock, stop, [this] { return !orders_.empty(); })) return;
        order = std::move(orders_.front());
        orders_.pop_front();
      }
      apply(order, stop);
      // [anchor: ahead-of-the-gradients]
      // The next update's first pieces do not depend on its gradients: they come while the device computes those.
      const auto buffers = static_cast<std::int64_t>(window_.states.size());
      if (!read_up_to(done_ * static_cast<std::int64_t>(pieces_.size()) + buffers - 1, stop)) return;
      {
        const std::lock_guard lock(mutex_);
        idle_ = orders_.empty();
      }
      changed_.notify_all();
    }
  } catch (...) {
    {
      const std::lock_guard lock(mutex_);
      error_ = std::current_exception();
    }
    changed_.notify_all();
  }
}

// [anchor: through-the-window]
// While a piece is updated the one behind it is read and the one before it written.
void StreamedUpdate::apply(const UpdateOrder& order, const std::stop_token& stop) {
  order.scalars_landed.wait();
  const AdamWFactors factors =
      adamw_factors(hyper_, static_cast<float>(order.scalars[0]), static_cast<std::int64_t>(order.scalars[1]),
                    static_cast<float>(order.scalars[2]));
  const auto pieces = static_cast<std::int64_t>(pieces_.size()),
             ahead = std::max<std::int64_t>(0, static_cast<std::int64_t>(window_.states.size()) - 2);
  for (std::int64_t number = done_ * pieces; number < (done_ + 1) * pieces; ++number) {
    if (!read_up_to(number + ahead, stop)) return;
    const auto begins = [&] {
      put_off_ = !may_begin(number, order);
      if (put_off_) changed_.notify_all();
      return !put_off_;
    };
    if (!wait_until(stop, begins)) return;
    if (delivery_ == Delivery::once_a_step) end_of_sending(number).wait();
    update(number, order, factors);
  }
  const std::lock_guard lock(mutex_);
  ++done_;
}

// With a delayed update what the coming step still computes with stays as it is until that has begun.
bool StreamedUpdate::may_begin(std::int64_t number, const UpdateOrder& order) const {
  if (!window_.grads.empty() && next_landing_ <= number) return false;
  if (released_ || sends_from_window()) return true;
  return (home_ ? steps_begun_ : states_[piece_of(number)].sends) >= order.after_sends;
}

bool StreamedUpdate::wait_until(const std::stop_token& stop, const std::function<bool()>& what) {
  std::unique_lock lock(mutex_);
  return changed_.wait(lock, stop, what);
}

// [anchor: a-buffer-is-free]
// When what was in it has been written, and its parameters are on the device.
bool StreamedUpdate::read_up_to(std::int64_t number, const std::stop_token& stop) {
  for (; next_read_ <= number; ++next_read_) {
    const std::int64_t before = next_read_ - static_cast<std::int64_t>(window_.states.size());
    const std::size_t buffer = buffer_of(next_read_);
    if (before >= 0) {
      written_[buffer].wait();
      stored_[buffer].wait();
      if (!wait_until(stop, [&] { return left(before); })) return false;
      if (sends_from_window()) end_of_sending(before).wait();
    }
    Ticket ticket = file_->transfers.read(piece_of(next_read_), bytes(next_read_), step_of(next_read_));
    read_[buffer] = ticket.end();
    keep(update_of(next_read_), std::move(ticket));
  }
  return true;
}

bool StreamedUpdate::left(std::int64_t number) const {
  return !sends_from_window() || states_[piece_of(number)].sends > update_of(number);
}

OpEnd StreamedUpdate::end_of_sending(std::int64_t number) {
  const std::lock_guard lock(mutex_);
  return states_[piece_of(number)].sent;
}

void StreamedUpdate::update(std::int64_t number, const UpdateOrder& order, const AdamWFactors& factors) {
  const std::size_t i = piece_of(number), buffer = buffer_of(number);
  const Piece& p = pieces_[i];
  read_[buffer].wait();
  (window_.grads.empty() ? order.landed[i] : landed_[buffer]).wait();
  const Vectors v = vectors(number);
  at::Tensor params = landing_of_params(number);  // undefined: the master itself, out of the window
  const bool rounds = params.defined() && params.scalar_type() != at::kFloat;
  std::shared_ptr<const HostPiece> work;
  if (factors.clip != kNoUpdate) {
    const at::Tensor grad = grad_of(number, order);
    AdamWVectors vectors{.grad = grad.const_data_ptr(),
                         .grad_dtype = from_aten(grad.scalar_type()),
                         .param = v.master.mutable_data_ptr<float>(),
                         .m = v.momentum.mutable_data_ptr<float>(),
                         .v = v.variance.mutable_data_ptr<float>()};
    if (rounds) {
      vectors.param16 = params.mutable_data_ptr();
      vectors.param16_dtype = from_aten(params.scalar_type());
      vectors.store = Store::streamed;
    }
    work = pool_.post(p.range.size(), [&factors, vectors, &p](std::int64_t begin, std::int64_t end) {
      adamw_chunk(factors, vectors, p.decay, {begin, end});
    });
    work->wait();
    file_->clock.updated(work->began_at(), work->ended_at());
  }
  // A step that is skipped still sends what there is: its buffer holds another piece's.
  if (params.defined() && (!rounds || factors.clip == kNoUpdate)) params.copy_(v.master);
  if (home_) {
    Ticket ticket = home_->store(i, update_of(number) + 1, buffer);
    stored_[buffer] = ticket.end();
    keep(update_of(number), std::move(ticket));
  }
  {
    const std::lock_guard lock(mutex_);
    states_[i].work = work;
    ++states_[i].updates;
  }
  changed_.notify_all();
  Ticket ticket = file_->transfers.write(i, bytes(number), step_of(number));
  written_[buffer] = ticket.end();
  keep(update_of(number), std::move(ticket));
}

at::Tensor StreamedUpdate::landing_of_params(std::int64_t number) const {
  const std::size_t i = piece_of(number), buffer = buffer_of(number);
  if (home_) return home_->landing(i, update_of(number) + 1, buffer);
  if (pieces_[i].params.defined() || window_.params.empty()) return pieces_[i].params;
  return window_.params[buffer].narrow(0, 0, pieces_[i].range.size());
}

at::Tensor StreamedUpdate::grad_of(std::int64_t number, const UpdateOrder& order) const {
  const Piece& p = pieces_[piece_of(number)];
  if (window_.grads.empty()) return p.grads[order.turn];
  return window_.grads[buffer_of(number)].narrow(0, 0, p.range.size());
}

}  // namespace sc
