#include "host_update.h"

#include <chrono>
#include <utility>

#include "common/memory/ledger.h"

namespace sc {

using namespace std::chrono_literals;

HostUpdate::HostUpdate(std::vector<Piece> pieces, const AdamWHyper& hyper, int threads)
    : PieceUpdates(std::move(pieces)),
      hyper_(hyper),
      states_(pieces_.size()),
      pool_(threads),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

HostUpdate::~HostUpdate() {
  thread_.request_stop();
  changed_.notify_all();
}

void HostUpdate::post(UpdateOrder order) {
  {
    const std::lock_guard lock(mutex_);
    orders_.push_back(std::move(order));
  }
  changed_.notify_all();
}

void HostUpdate::run(const std::stop_token& stop) {
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
    }
  } catch (...) {
    {
      const std::lock_guard lock(mutex_);
      error_ = std::current_exception();
    }
    changed_.notify_all();
  }
}

// [anchor: adam-after-the-norm]
// Nothing is updated before everybody's norm is known: when the scalars are here, most gradients have landed.
void HostUpdate::apply(const UpdateOrder& order, const std::stop_token& stop) {
  order.scalars_landed.wait();
  const AdamWFactors factors =
      adamw_factors(hyper_, static_cast<float>(order.scalars[0]), static_cast<std::int64_t>(order.scalars[1]),
                    static_cast<float>(order.scalars[2]));
  std::vector<bool> begun(pieces_.size());
  for (std::size_t left = pieces_.size(); left > 0 && !stop.stop_requested();) {
    if (const std::optional<std::size_t> piece = next(order, begun)) {
      begin(*piece, order, factors);
      begun[*piece] = true;
      --left;
    } else {
      std::this_thread::sleep_for(50us);
    }
  }
}

// Of the pieces that have landed, and that the update before has left, the one that forward needs first.
std::optional<std::size_t> HostUpdate::next(const UpdateOrder& order, const std::vector<bool>& begun) {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const State& state = states_[i];
    if (begun[i] || !order.landed[i].passed() || !done(state)) continue;
    // [anchor: not-overwritten-on-its-way]
    // What is on its way to the device is not overwritten.
    if ((released_ || state.sends >= order.after_sends) && state.sent.passed()) return i;
  }
  return {};
}

void HostUpdate::begin(std::size_t piece, const UpdateOrder& order, const AdamWFactors& factors) {
  order.landed[piece].wait();  // has passed; throws what the copy failed with
  const Piece& p = pieces_[piece];
  std::shared_ptr<const HostPiece> work;
  if (factors.clip != kNoUpdate) {
    const at::Tensor& grad = p.grads[order.turn];
    AdamWVectors vectors{.grad = grad.const_data_ptr(),
                         .grad_dtype = from_aten(grad.scalar_type()),
                         .param = p.master.mutable_data_ptr<float>(),
                         .m = p.momentum.mutable_data_ptr<float>(),
                         .v = p.variance.mutable_data_ptr<float>()};
    if (!p.params.is_same(p.master)) {
      vectors.param16 = p.params.mutable_data_ptr();
      vectors.param16_dtype = from_aten(p.params.scalar_type());
      vectors.store = Store::streamed;
    }
    work = pool_.post(p.range.size(), [factors, vectors, &p](std::int64_t begin, std::int64_t end) {
      adamw_chunk(factors, vectors, p.decay, {begin, end});
    });
  }
  {
    const std::lock_guard lock(mutex_);
    states_[piece].work = std::move(work);
    ++states_[piece].updates;
  }
  changed_.notify_all();
}

bool HostUpdate::ready(std::size_t piece, std::int64_t updates) {
  const std::lock_guard lock(mutex_);
  return !error_ && states_[piece].updates >= updates && done(states_[piece]);
}

std::shared_ptr<const HostPiece> HostUpdate::wait(std::size_t piece, std::int64_t updates) {
  std::shared_ptr<const HostPiece> work;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return error_ || states_[piece].updates >= updates; });
    if (error_) std::rethrow_exception(error_);
    work = states_[piece].work;
  }
  if (work) work->wait();
  return work;
}

void HostUpdate::sent(std::size_t piece, OpEnd end, bool in_step) {
  if (!in_step) return;  // what an evaluation was sent is sent again
  const std::lock_guard lock(mutex_);
  ++states_[piece].sends;
  states_[piece].sent = std::move(end);
}

std::vector<StateSlice> HostUpdate::state(int turn) {
  std::vector<StateSlice> state;
  for (const Piece& piece : pieces_) {
    const auto add = [&](Purpose purpose, const at::Tensor& values, Place place) {
      state.push_back({purpose, piece.unit, Segment::sharded, piece.range, in_tensor(values), place});
    };
    add(Purpose::parameters, piece.params, Place::pinned);
    if (!piece.params.is_same(piece.master)) add(Purpose::master, piece.master, Place::host);
    add(Purpose::momentum, piece.momentum, Place::host);
    add(Purpose::variance, piece.variance, Place::host);
    add(Purpose::gradients, piece.grads[turn], Place::pinned);
  }
  return state;
}

void HostUpdate::release() {
  const std::lock_guard lock(mutex_);
  released_ = true;
}

}  // namespace sc
