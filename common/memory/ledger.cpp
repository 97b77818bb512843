#include "common/memory/ledger.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <new>
#include <stdexcept>

#include "common/base/check.h"
#include "common/base/text.h"
#include "common/memory/host_pages.h"

namespace sc {
namespace {

constexpr const char* kSmaller =
    "a smaller batch.micro, activations=recompute, or a strategy that shards more";

}  // namespace

at::ScalarType to_aten(DType dtype) {
  constexpr std::array kTypes = {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf,
                                 at::kLong,   at::kInt,   at::kByte};
  return kTypes[static_cast<std::size_t>(dtype)];
}

DType from_aten(at::ScalarType type) {
  for (const DType dtype :
       {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8}) {
    if (to_aten(dtype) == type) return dtype;
  }
  throw InputError(ExitCode::usage, "dtype", std::string("unsupported tensor type ") + c10::toString(type),
                   "use f64, f32, bf16, f16, i64, i32 or u8");
}

// The state outlives the ledger while tensors do, because their deleters give bytes back here.
struct Ledger::State {
  State(at::Device device_in, const Caps& caps_in) : device(device_in), caps(caps_in) {}

  struct Cap {
    const char* flag;
    Bytes limit, in_use;
  };
  [[nodiscard]] Cap cap_of(Place place) const {
    if (place == Place::device) return {"--memory-cap", caps.device, of(total, place)};
    if (place == Place::disk) return {"--disk-cap", caps.disk, of(total, place)};
    return {"--host-cap", caps.host, of(total, Place::pinned) + of(total, Place::host)};
  }

  void take(const BufferName& buffer, Bytes bytes) {
    const std::scoped_lock lock(mutex);
    const auto& [purpose, place, name] = buffer;
    const Cap cap = cap_of(place);
    if (cap.limit.value() > 0 && cap.in_use + bytes > cap.limit) {
      throw InputError(ExitCode::missing, std::string(cap.flag) + " " + human_bytes(cap.limit),
                       std::string(in_words(purpose)) + " '" + name + "' asks for " + human_bytes(bytes) +
                           ", " + human_bytes(cap.in_use) + " are in use",
                       std::string("a larger cap, ") + kSmaller);
    }
    const auto add = [bytes](Bytes& now, Bytes& most) {
      now += bytes;
      most = std::max(most, now);
    };
    add(live.at(purpose, place), peak.at(purpose, place));
    add(live_by_name[buffer], peak_by_name[buffer]);
    add(of(total, place), of(peak_total, place));
  }

  void give_back(const BufferName& buffer, Bytes bytes) {
    const std::scoped_lock lock(mutex);
    live.at(buffer.purpose, buffer.place) -= bytes;
    live_by_name[buffer] -= bytes;
    of(total, buffer.place) -= bytes;
  }

  void adopt(Bytes bytes) {
    const std::scoped_lock lock(mutex);
    adopted += bytes;
  }

  using Totals = std::array<Bytes, kPlaces>;
  static Bytes& of(Totals& totals, Place place) { return totals[static_cast<std::size_t>(place)]; }
  static const Bytes& of(const Totals& totals, Place place) {
    return totals[static_cast<std::size_t>(place)];
  }

  const at::Device device;
  const Caps caps;
  mutable std::mutex mutex;
  ByPlace<Bytes> live, peak;
  ByName live_by_name, peak_by_name;
  Totals total{}, peak_total{};
  Bytes adopted;
};

Ledger::Ledger(at::Device device, const Caps& caps) : state_(std::make_shared<State>(device, caps)) {}
Ledger::~Ledger() = default;

std::shared_ptr<void> Ledger::reserve(Purpose purpose, const std::string& name, Bytes bytes, Place place) {
  const BufferName buffer{purpose, place, name};
  state_->take(buffer, bytes);
  // The pointer only has to be non-null, so that its deleter is called; nobody dereferences it.
  return {state_.get(), [state = state_, buffer, bytes](void*) { state->give_back(buffer, bytes); }};
}

at::Tensor Ledger::allocate(Purpose purpose, const std::string& name, at::IntArrayRef shape, DType dtype,
                            Place place) {
  if (place == Place::disk) throw std::logic_error("'" + name + "': a tensor does not lie on a disk");
  const Bytes bytes = bytes_of(Elements(c10::multiply_integers(shape)), dtype);
  const auto options = at::TensorOptions()
                           .dtype(to_aten(dtype))
                           .device(place == Place::device ? state_->device : at::Device(at::kCPU));
  if (bytes.value() == 0) return at::empty(shape, options);  // has no bytes to count
  std::shared_ptr<void> counted = reserve(purpose, name, bytes, place);
  try {
    if (place == Place::device) {
      at::Tensor owner = at::empty(shape, options);
      void* data = owner.data_ptr();
      return at::from_blob(
          data, shape, [owner, counted](void*) mutable { owner.reset(), counted.reset(); }, options);
    }
    const bool pinned = place == Place::pinned && state_->device.is_cuda();
    std::shared_ptr<void> pages = host_pages(bytes, pinned);
    void* data = pages.get();
    return at::from_blob(
        data, shape, [pages, counted](void*) mutable { pages.reset(), counted.reset(); }, options);
  } catch (const std::bad_alloc&) {
  } catch (const c10::Error&) {
  }
  counted.reset();
  throw InputError(ExitCode::missing, "memory",
                   std::string(in_words(purpose)) + " '" + name + "' asks for " + human_bytes(bytes) +
                       ", which this machine does not give (" + human_bytes(live_total(place)) +
                       " are in use)",
                   kSmaller);
}

at::Tensor Ledger::adopt(Purpose purpose, const std::string& name, at::IntArrayRef shape, DType dtype,
                         std::shared_ptr<void> memory) {
  const Bytes bytes = bytes_of(Elements(c10::multiply_integers(shape)), dtype);
  const BufferName buffer{purpose, Place::device, name};
  state_->take(buffer, bytes);
  state_->adopt(bytes);
  void* data = memory.get();
  auto give_back = [state = state_, memory = std::move(memory), buffer, bytes](void*) mutable {
    memory.reset();
    state->give_back(buffer, bytes);
    state->adopt(Bytes(0) - bytes);
  };
  return at::from_blob(data, shape, std::move(give_back),
                       at::TensorOptions().dtype(to_aten(dtype)).device(state_->device));
}

at::Tensor Ledger::zeros(Purpose purpose, const std::string& name, at::IntArrayRef shape, DType dtype,
                         Place place) {
  at::Tensor t = allocate(purpose, name, shape, dtype, place);
  t.zero_();
  return t;
}

at::Tensor Ledger::zeros(const Buffer& buffer, const MakeMemory& window) {
  const auto& [purpose, name, elements, dtype, place] = buffer;
  std::shared_ptr<void> memory = window ? window(buffer.bytes()) : nullptr;
  if (!memory) return zeros(purpose, name, {elements.value()}, dtype, place);
  return adopt(purpose, name, {elements.value()}, dtype, std::move(memory)).zero_();
}

at::Device Ledger::device() const { return state_->device; }

Bytes Ledger::live(Purpose purpose, Place place) const {
  const std::scoped_lock lock(state_->mutex);
  return state_->live.at(purpose, place);
}
Bytes Ledger::peak(Purpose purpose, Place place) const {
  const std::scoped_lock lock(state_->mutex);
  return state_->peak.at(purpose, place);
}
ByPlace<Bytes> Ledger::peaks() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->peak;
}
ByName Ledger::peaks_by_name() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->peak_by_name;
}
Bytes Ledger::live_total(Place place) const {
  const std::scoped_lock lock(state_->mutex);
  return State::of(state_->total, place);
}
Bytes Ledger::peak_total(Place place) const {
  const std::scoped_lock lock(state_->mutex);
  return State::of(state_->peak_total, place);
}
Bytes Ledger::adopted() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->adopted;
}
void Ledger::reset_peaks() {
  const std::scoped_lock lock(state_->mutex);
  state_->peak = state_->live;
  state_->peak_by_name = state_->live_by_name;
  state_->peak_total = state_->total;
}

}  // namespace sc
