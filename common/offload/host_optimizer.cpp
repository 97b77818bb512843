#include "common/offload/host_optimizer.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/memory/ledger.h"

namespace sc {

using namespace std::chrono_literals;

namespace {
// The time between two checks by the optimizer's thread whether a copy or a transfer has ended.
constexpr auto kNap = 50us;
constexpr std::ptrdiff_t kScalars = 3;
// How many pieces the pool has at a time, the one in progress included. Few, because a piece that arrives
// later may be needed earlier.
constexpr std::size_t kWaiting = 2;

AdamWFactors factors_of(const AdamWHyper& hyper, const double* scalars) {
  return adamw_factors(hyper, static_cast<float>(scalars[0]), static_cast<std::int64_t>(scalars[1]),
                       static_cast<float>(scalars[2]));
}

std::vector<std::vector<std::size_t>> by_unit(const std::vector<Piece>& pieces) {
  std::vector<std::vector<std::size_t>> numbers;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto unit = static_cast<std::size_t>(pieces[i].unit);
    if (numbers.size() <= unit) numbers.resize(unit + 1);
    numbers[unit].push_back(i);
  }
  return numbers;
}
}  // namespace

// [anchor: adam-after-the-norm]
// An update needs its scalars. If they say whether the gradient is clipped, the global norm comes before
// them, and by then most gradients have arrived (or none, if they wait on the device and come piece by
// piece).
// [anchor: adam-before-the-norm]
// If the scalars are a guess, each piece is updated as it arrives, and the results are not published yet. The
// norm says whether the guess was right: then all results count. If not, they are computed again from the old
// states, which are still there, and the next guess is not used before it has proved right.
void HostOptimizer::apply(const UpdateOrder& order, const std::stop_token& stop) {
  order.scalars.landed.wait();
  AdamWFactors factors = factors_of(hyper_, order.scalars.numbers);
  std::vector<bool> begun(pieces_.size());
  bool sure = order.norm != NormIs::guessed;
  for (std::size_t left = pieces_.size(); (left > 0 || !sure) && !stop.stop_requested();) {
    const double* truth = order.norm == NormIs::needed ? nullptr : known_norm();
    if (!sure && truth != nullptr) {
      sure = true;
      trusted_ = std::equal(truth, truth + kScalars, order.scalars.numbers);
      if (trusted_) {
        for (std::size_t i = 0; i < pieces_.size(); ++i)
          if (begun[i]) keep(i, factors);
      } else {
        factors = factors_of(hyper_, truth);
        count(&UpdateCounts::again, std::ranges::count(begun, true));
        begun.assign(pieces_.size(), false);
        left = pieces_.size();
      }
    }
    const bool more = store_.fetch_ahead(*this), may = (sure || trusted_) && pool_.waiting() < kWaiting;
    if (const std::optional<std::size_t> piece = may ? first_ready(order, begun, more) : std::nullopt) {
      update(*piece, factors);
      if (sure) keep(*piece, factors);
      if (order.norm != NormIs::needed && truth == nullptr) count(&UpdateCounts::before_norm, 1);
      begun[*piece] = true;
      --left;
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
}

// The norm of the update in progress; null as long as it is not known.
const double* HostOptimizer::known_norm() const {
  const std::lock_guard lock(mutex_);
  const bool known = norm_.update == done_ && norm_.scalars.landed.passed();
  return known ? norm_.scalars.numbers : nullptr;
}

// The piece that forward needs first, of those whose gradient is here and whose previous update has ended.
std::optional<std::size_t> HostOptimizer::first_ready(const UpdateOrder& order,
                                                      const std::vector<bool>& begun, bool more) {
  const std::lock_guard lock(mutex_);
  bool held = true;  // everything left waits for the strategy
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const State& state = states_[i];
    if (begun[i] || !may_begin(state, order)) continue;
    held = false;
    if (!state.gradient(done_).landed.passed() || !store_.fetched(number_of(done_, i)) || !state.done())
      continue;
    // [anchor: not-overwritten-on-its-way]
    if (state.sent.passed()) {
      held_ = false;
      return i;
    }
  }
  if (!std::exchange(held_, held && !more) && held_) changed_.notify_all();
  return {};
}

// Whether the strategy has done its part for a piece's update: the gradient is on its way, and the parameters
// that the update changes have been sent for the last time.
bool HostOptimizer::may_begin(const State& state, const UpdateOrder& order) const {
  if (state.gradient(done_).update != done_) return false;
  return released_ || state.sends >= order.after_sends;
}

// What AdamW reads and writes. `params` receives rounded parameters, none if it is undefined or fp32.
AdamWVectors HostOptimizer::places_of(const at::Tensor& grad, const PieceStates& from, const PieceStates& to,
                                      at::Tensor& params) {
  AdamWVectors places{.grad = grad.const_data_ptr(),
                      .grad_dtype = from_aten(grad.scalar_type()),
                      .param = to.master.mutable_data_ptr<float>(),
                      .m = to.momentum.mutable_data_ptr<float>(),
                      .v = to.variance.mutable_data_ptr<float>()};
  if (!to.master.is_same(from.master))
    places.from = {from.master.const_data_ptr<float>(), from.momentum.const_data_ptr<float>(),
                   from.variance.const_data_ptr<float>()};
  if (params.defined() && params.scalar_type() != at::kFloat) {
    places.param16 = params.mutable_data_ptr();
    places.param16_dtype = from_aten(params.scalar_type());
    places.store = Store::streamed;
  }
  return places;
}

void HostOptimizer::update(std::size_t piece, const AdamWFactors& factors) {
  const Piece& p = pieces_[piece];
  State::Gradient gradient;
  {
    const std::lock_guard lock(mutex_);
    gradient = states_[piece].gradient(done_);
  }
  gradient.landed.wait();  // has ended already; throws the copy's error
  const PieceStates from = store_.states(number_of(done_, piece)),
                    to = store_.destination(number_of(done_, piece)).value_or(from);
  at::Tensor params = slots_.destination(piece, done_ + 1);
  const AdamWVectors places = places_of(gradient.values, from, to, params);
  std::shared_ptr<const HostPiece> work;
  if (factors.clip != kNoUpdate)
    work = pool_.post(p.range.size(), [factors, places, &p](std::int64_t begin, std::int64_t end) {
      adamw_chunk(factors, places, p.decay, {begin, end});
    });
  // A skipped step still sends the old parameters, because its slot may hold another piece's.
  if (params.defined() && (places.param16 == nullptr || factors.clip == kNoUpdate)) {
    if (work) work->wait();
    params.copy_(work ? to.master : from.master);
  }
  slots_.written(piece, done_ + 1, work);
  store_.put_back(number_of(done_, piece), work);
  {
    const std::lock_guard lock(mutex_);
    states_[piece].work = std::move(work);
  }
}

// Publishes a piece's update to whoever waits for it.
void HostOptimizer::keep(std::size_t piece, const AdamWFactors& factors) {
  {
    const std::lock_guard lock(mutex_);
    if (factors.clip != kNoUpdate) store_.keep(number_of(done_, piece));
    ++states_[piece].updates;
    ++counts_.updated;
  }
  changed_.notify_all();
}

HostOptimizer::HostOptimizer(std::vector<Piece> pieces, const AdamWHyper& hyper, int threads,
                             StateStore& store, ParamSlots& slots)
    : pieces_(std::move(pieces)),
      pieces_of_(by_unit(pieces_)),
      hyper_(hyper),
      store_(store),
      slots_(slots),
      states_(pieces_.size()),
      pool_(threads),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

HostOptimizer::~HostOptimizer() {
  thread_.request_stop();
  changed_.notify_all();
}

void HostOptimizer::run(const std::stop_token& stop) {
  const c10::InferenceMode inference;
  try {
    for (bool more = false; !stop.stop_requested();) {
      const std::optional<UpdateOrder> order = next_order(more, stop);
      if (order) {
        apply(*order, stop);
        const std::lock_guard lock(mutex_);
        ++done_;
      }
      // [anchor: ahead-of-the-gradients]
      // The first states of the next update do not depend on its gradients, so they are fetched while the
      // device computes gradients.
      if (order || more) more = store_.fetch_ahead(*this);
    }
  } catch (...) {
    {
      const std::lock_guard lock(mutex_);
      error_ = std::current_exception();
    }
    changed_.notify_all();
  }
}

// Waits for the next order. With `more` the store soon has room, so it is asked again meanwhile.
std::optional<UpdateOrder> HostOptimizer::next_order(bool more, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const auto posted = [this] { return !orders_.empty(); };
  if (more) {
    changed_.wait_for(lock, stop, kNap, posted);
  } else {
    if (!posted()) idle_ = true, changed_.notify_all();
    changed_.wait(lock, stop, posted);
  }
  if (stop.stop_requested() || !posted()) return {};
  UpdateOrder order = std::move(orders_.front());
  orders_.pop_front();
  return order;
}

void HostOptimizer::lands(std::size_t piece, std::int64_t update, const at::Tensor& grad, OpEnd end) {
  const std::lock_guard lock(mutex_);
  states_[piece].gradients[update % 2] = {update, grad, std::move(end)};
  held_ = false;
}

void HostOptimizer::wait_landed(std::int64_t update) const {
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    State::Gradient gradient;
    {
      const std::lock_guard lock(mutex_);
      gradient = states_[i].gradient(update);
    }
    if (gradient.update == update) gradient.landed.wait();
  }
}

void HostOptimizer::post(UpdateOrder order) {
  const std::lock_guard lock(mutex_);
  if (order.norm != NormIs::needed) return begin(std::move(order));
  needs_norm_ = std::move(order);
}

void HostOptimizer::norm_known(std::int64_t update, LandedScalars scalars) {
  const std::lock_guard lock(mutex_);
  held_ = false;
  norm_ = {update, scalars};
  if (!needs_norm_) return;
  needs_norm_->scalars = std::move(scalars);
  begin(*std::exchange(needs_norm_, std::nullopt));
}

// Enters an order. The caller holds mutex_.
void HostOptimizer::begin(UpdateOrder order) {
  orders_.push_back(std::move(order));
  idle_ = false;
  changed_.notify_all();
}

void HostOptimizer::count(std::int64_t UpdateCounts::*what, std::int64_t pieces) {
  const std::lock_guard lock(mutex_);
  counts_.*what += pieces;
}

UpdateCounts HostOptimizer::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

bool HostOptimizer::updated(int unit, std::int64_t updates) const {
  const std::lock_guard lock(mutex_);
  return !error_ && std::ranges::all_of(pieces_of(unit), [&](std::size_t i) {
    return states_[i].updates >= updates && states_[i].done();
  });
}

std::shared_ptr<const HostPiece> HostOptimizer::wait(std::size_t piece, std::int64_t updates) const {
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

void HostOptimizer::sent(std::size_t piece, OpEnd end) {
  const std::lock_guard lock(mutex_);
  ++states_[piece].sends;
  states_[piece].sent = std::move(end);
  held_ = false;
}

std::int64_t HostOptimizer::sends(std::size_t piece) const {
  const std::lock_guard lock(mutex_);
  return states_[piece].sends;
}

void HostOptimizer::release() {
  const std::lock_guard lock(mutex_);
  released_ = true;
  held_ = false;
}

std::int64_t HostOptimizer::settle() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return error_ || idle_ || held_; });
  if (error_) std::rethrow_exception(error_);
  return done_;
}

bool HostOptimizer::sent_since(Number number) const {
  const auto pieces = static_cast<Number>(pieces_.size());
  const std::lock_guard lock(mutex_);
  const State& state = states_[static_cast<std::size_t>(number % pieces)];
  return state.sends > number / pieces && state.sent.passed();
}

}  // namespace sc
