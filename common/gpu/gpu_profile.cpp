#include "common/gpu/gpu_profile.h"

#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <optional>

#include "common/base/cuda_check.h"

namespace sc {
namespace {

std::string pci_bus_id() {
  std::array<char, 32> id{};
  SC_CHECK(cudaDeviceGetPCIBusId(id.data(), static_cast<int>(id.size()), c10::cuda::current_device()));
  return id.data();
}

// The milliseconds of one call, from a row of calls that takes some 20 ms.
double milliseconds_alone(const std::function<void()>& call) {
  const auto time = [&](int calls) {
    at::cuda::CUDAEvent begin(cudaEventDefault), end(cudaEventDefault);
    begin.record();
    for (int i = 0; i < calls; ++i) call();
    end.record();
    end.synchronize();
    return static_cast<double>(begin.elapsed_time(end)) / calls;
  };
  constexpr int kFirst = 3;
  constexpr double kMilliseconds = 20;
  (void)time(kFirst);  // lets the library choose its kernel
  const double about = std::max(time(kFirst), 1e-3);
  return time(static_cast<int>(std::ceil(kMilliseconds / about)));
}

// The milliseconds of one matrix product alone; nullopt if the GPU has no memory left for its operands.
std::optional<double> milliseconds_of(const ProductShape& p, at::ScalarType dtype) {
  try {
    const auto options = at::TensorOptions().device(at::kCUDA).dtype(dtype);
    const at::Tensor a = at::randn({p.m, p.k}, options), b = at::randn({p.n, p.k}, options);
    at::Tensor y = at::empty({p.m, p.n}, options);
    return milliseconds_alone([&] { at::mm_out(y, a, b.t()); });
  } catch (const c10::OutOfMemoryError&) {
    return std::nullopt;
  }
}

// The bytes per second of a copy within the GPU, reads and writes added; nullopt if it has no memory left.
std::optional<double> rate_of_a_copy() {
  constexpr std::int64_t kBytes = std::int64_t{512} << 20;  // many times the cache
  try {
    const auto options = at::TensorOptions().device(at::kCUDA).dtype(at::kByte);
    const at::Tensor from = at::empty({kBytes}, options);
    at::Tensor to = at::empty({kBytes}, options);
    return 2.0 * static_cast<double>(kBytes) / (milliseconds_alone([&] { to.copy_(from); }) / 1e3);
  } catch (const c10::OutOfMemoryError&) {
    return std::nullopt;
  }
}

class EventProfile final : public GpuProfile {
 public:
  EventProfile() { current() = this; }
  ~EventProfile() override { current() = nullptr; }
  EventProfile(const EventProfile&) = delete;
  EventProfile& operator=(const EventProfile&) = delete;

  void begin(std::string_view op, const OpCost& cost) override {
    if (!on_) return;
    const std::size_t now = mark();
    if (!calls_.empty() && calls_.back().end == 0) calls_.back().end = now;
    calls_.push_back({std::string(op), cost, now, 0});
  }
  void end() override {
    if (on_ && calls_.back().end == 0) calls_.back().end = mark();
  }

  void begin_step() override {
    on_ = true;
    used_ = 0;
    calls_.clear();
    mark();  // time before the first operation, a wait perhaps, is part of the step
  }

  void end_step() override {
    on_ = false;
    const std::size_t last = mark();
    if (const auto sample = sensors_.sample()) samples_.push_back(*sample);  // while the GPU is still busy
    SC_CHECK(cudaDeviceSynchronize());
    if (calls_.empty()) return;
    for (const Call& call : calls_) {
      ProfileRow& row = rows_[call.op];
      row.op = call.op;
      row.milliseconds += elapsed(call.begin, call.end);
      row.flops += call.cost.flops;
      row.bytes += call.cost.bytes;
      ++row.calls;
      if (call.cost.product != ProductShape{}) ++products_[call.op][call.cost.product];
    }
    milliseconds_ += elapsed(0, last);
    ++steps_;
  }

  Profile finish(c10::ScalarType dtype) override {
    Profile profile;
    profile.steps = steps_;
    profile.step_milliseconds = milliseconds_ / static_cast<double>(std::max<std::int64_t>(steps_, 1));
    profile.sensors = median_of(samples_);
    measure_products(dtype, profile);
    profile.memory_rate = rate_of_a_copy().value_or(0);
    for (auto& [op, row] : rows_) {
      if (row.bytes > 0 && profile.memory_rate > 0) row.alone = row.bytes / profile.memory_rate * 1e3;
      if (row.flops > 0 && !products_.contains(op) && profile.product_rate > 0)
        row.alone = row.flops / profile.product_rate * 1e3;  // attention, whose bound is that of products
      profile.rows.push_back(row);
    }
    std::ranges::sort(profile.rows, std::greater<>(), &ProfileRow::milliseconds);
    return profile;
  }

 private:
  struct Call {
    std::string op;
    OpCost cost;
    std::size_t begin, end;  // indices of events
  };

  std::size_t mark() {
    if (used_ == events_.size()) events_.emplace_back(cudaEventDefault);
    events_[used_].record();
    return used_++;
  }

  [[nodiscard]] double elapsed(std::size_t from, std::size_t to) const {
    return static_cast<double>(events_[from].elapsed_time(events_[to]));
  }

  // Measures each shape of product once. A row's bound is known if all of its shapes could be measured.
  void measure_products(at::ScalarType dtype, Profile& profile) {
    std::map<ProductShape, std::optional<double>> alone;
    for (const auto& [op, shapes] : products_) {
      double sum = 0;
      bool known = true;
      for (const auto& [shape, calls] : shapes) {
        const auto [found, fresh] = alone.try_emplace(shape);
        if (fresh) found->second = milliseconds_of(shape, dtype);
        known = known && found->second.has_value();
        if (!known) break;
        sum += *found->second * static_cast<double>(calls);
        profile.product_rate = std::max(profile.product_rate, shape.flops() / (*found->second / 1e3));
      }
      if (known) rows_[op].alone = sum;
    }
  }

  std::deque<at::cuda::CUDAEvent> events_;  // grows in the first step and is reused later
  std::size_t used_ = 0;
  std::vector<Call> calls_;  // of the current step
  std::map<std::string, ProfileRow> rows_;
  std::map<std::string, std::map<ProductShape, std::int64_t>> products_;  // number of calls, by row and shape
  GpuSensors sensors_{pci_bus_id()};
  std::vector<GpuSensors::Sample> samples_;  // one per step
  double milliseconds_ = 0;
  std::int64_t steps_ = 0;
  bool on_ = false;
};

}  // namespace

std::unique_ptr<GpuProfile> profile_gpu() { return std::make_unique<EventProfile>(); }

}  // namespace sc
