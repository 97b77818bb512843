#include "common/memory/ledger.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "common/base/check.h"
#include "common/base/text.h"

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

// Outlives the ledger while tensors do: a tensor's deleter gives its bytes back here.
struct Ledger::State {
  State(at::Device device_in, Bytes cap_in) : device(device_in), cap(cap_in) {}

  static bool counted_in_total(Purpose purpose) {
    return purpose != Purpose::host && purpose != Purpose::disk;
  }

  void take(Purpose purpose, const std::string& name, Bytes bytes) {
    const std::scoped_lock lock(mutex);
    if (cap.value() > 0 && counted_in_total(purpose) && total + bytes > cap) {
      throw InputError(ExitCode::missing, "--memory-cap " + human_bytes(cap),
                       std::string(name_of(purpose)) + " '" + name + "' asks for " + human_bytes(bytes) +
                           ", " + human_bytes(total) + " are in use",
                       std::string("a larger cap, ") + kSmaller);
    }
    auto& now = live[static_cast<std::size_t>(purpose)];
    now += bytes;
    peak[static_cast<std::size_t>(purpose)] = std::max(peak[static_cast<std::size_t>(purpose)], now);
    if (counted_in_total(purpose)) {
      total += bytes;
      peak_total = std::max(peak_total, total);
    }
  }

  void give_back(Purpose purpose, Bytes bytes) {
    const std::scoped_lock lock(mutex);
    live[static_cast<std::size_t>(purpose)] -= bytes;
    if (counted_in_total(purpose)) total -= bytes;
  }

  void adopt(Bytes bytes) {
    const std::scoped_lock lock(mutex);
    adopted += bytes;
  }

  const at::Device device;
  const Bytes cap;
  mutable std::mutex mutex;
  std::array<Bytes, kPurposes> live{}, peak{};
  Bytes total, peak_total, adopted;
};

Ledger::Ledger(at::Device device, Bytes cap) : state_(std::make_shared<State>(device, cap)) {}
Ledger::~Ledger() = default;

at::Tensor Ledger::allocate(Purpose purpose, const std::string& name, at::IntArrayRef shape, DType dtype) {
  const bool on_host = purpose == Purpose::host;
  const Bytes bytes = bytes_of(Elements(c10::multiply_integers(shape)), dtype);
  state_->take(purpose, name, bytes);
  auto options =
      at::TensorOptions().dtype(to_aten(dtype)).device(on_host ? at::Device(at::kCPU) : state_->device);
  if (on_host && state_->device.is_cuda()) options = options.pinned_memory(true);
  try {
    at::Tensor owner = at::empty(shape, options);
    void* data = owner.data_ptr();
    auto give_back = [state = state_, owner, purpose, bytes](void*) mutable {
      owner.reset();
      state->give_back(purpose, bytes);
    };
    if (data == nullptr) {  // zero elements: nothing to track
      state_->give_back(purpose, bytes);
      return owner;
    }
    return at::from_blob(data, shape, std::move(give_back), options.pinned_memory(false));
  } catch (const c10::Error&) {
    state_->give_back(purpose, bytes);
    throw InputError(ExitCode::missing, "memory",
                     std::string(name_of(purpose)) + " '" + name + "' asks for " + human_bytes(bytes) +
                         ", which this machine does not give (" + human_bytes(live_total()) + " are in use)",
                     kSmaller);
  }
}

at::Tensor Ledger::adopt(Purpose purpose, const std::string& name, at::IntArrayRef shape, DType dtype,
                         std::shared_ptr<void> memory) {
  const Bytes bytes = bytes_of(Elements(c10::multiply_integers(shape)), dtype);
  state_->take(purpose, name, bytes);
  state_->adopt(bytes);
  void* data = memory.get();
  auto give_back = [state = state_, memory = std::move(memory), purpose, bytes](void*) mutable {
    memory.reset();
    state->give_back(purpose, bytes);
    state->adopt(Bytes(0) - bytes);
  };
  return at::from_blob(data, shape, std::move(give_back),
                       at::TensorOptions().dtype(to_aten(dtype)).device(state_->device));
}

at::Tensor Ledger::zeros(Purpose purpose, const std::string& name, at::IntArrayRef shape, DType dtype) {
  at::Tensor t = allocate(purpose, name, shape, dtype);
  t.zero_();
  return t;
}

at::Device Ledger::device() const { return state_->device; }
Bytes Ledger::cap() const { return state_->cap; }

Bytes Ledger::live(Purpose purpose) const {
  const std::scoped_lock lock(state_->mutex);
  return state_->live[static_cast<std::size_t>(purpose)];
}
Bytes Ledger::peak(Purpose purpose) const {
  const std::scoped_lock lock(state_->mutex);
  return state_->peak[static_cast<std::size_t>(purpose)];
}
Bytes Ledger::live_total() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->total;
}
Bytes Ledger::peak_total() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->peak_total;
}
Bytes Ledger::adopted() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->adopted;
}
void Ledger::reset_peaks() {
  const std::scoped_lock lock(state_->mutex);
  state_->peak = state_->live;
  state_->peak_total = state_->total;
}

}  // namespace sc
