#include "common/run/gpu_profile.h"

#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <deque>
#include <map>

#include "common/base/cuda_check.h"

namespace sc {

struct GpuProfile::State {
  struct Call {
    std::string op;
    OpCost cost;
    std::size_t begin, end;  // events
  };

  std::size_t mark() {
    if (used == events.size()) events.emplace_back(cudaEventDefault);
    events[used].record();
    return used++;
  }

  std::deque<at::cuda::CUDAEvent> events;  // grows in the first step, then used again
  std::size_t used = 0;
  std::vector<Call> calls;  // of the step that runs
  std::map<std::string, ProfileRow> rows;
  double milliseconds = 0;
  std::int64_t steps = 0;
  bool on = false;
};

GpuProfile::GpuProfile() : state_(std::make_unique<State>()) { current() = this; }
GpuProfile::~GpuProfile() { current() = nullptr; }

void GpuProfile::begin(std::string_view op, const OpCost& cost) {
  if (state_->on) state_->calls.push_back({std::string(op), cost, state_->mark(), 0});
}

void GpuProfile::end() {
  if (state_->on) state_->calls.back().end = state_->mark();
}

void GpuProfile::begin_step() {
  state_->on = true;
  state_->used = 0;
  state_->calls.clear();
}

void GpuProfile::end_step() {
  state_->on = false;
  SC_CHECK(cudaDeviceSynchronize());
  if (state_->calls.empty()) return;
  const auto elapsed = [this](std::size_t from, std::size_t to) {
    return static_cast<double>(state_->events[from].elapsed_time(state_->events[to]));
  };
  for (const State::Call& call : state_->calls) {
    ProfileRow& row = state_->rows[call.op];
    row.op = call.op;
    row.milliseconds += elapsed(call.begin, call.end);
    row.flops += call.cost.flops;
    row.bytes += call.cost.bytes;
    ++row.calls;
  }
  state_->milliseconds += elapsed(state_->calls.front().begin, state_->calls.back().end);
  ++state_->steps;
}

std::int64_t GpuProfile::steps() const { return state_->steps; }

std::vector<ProfileRow> GpuProfile::rows() const {
  std::vector<ProfileRow> rows;
  for (const auto& [op, row] : state_->rows) rows.push_back(row);
  std::sort(rows.begin(), rows.end(),
            [](const ProfileRow& a, const ProfileRow& b) { return a.milliseconds > b.milliseconds; });
  return rows;
}

double GpuProfile::step_milliseconds() const {
  return state_->steps == 0 ? 0 : state_->milliseconds / static_cast<double>(state_->steps);
}

}  // namespace sc
