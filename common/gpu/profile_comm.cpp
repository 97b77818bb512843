#include "common/gpu/profile_comm.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <sstream>
#include <string>

#include "common/comm/gather_text.h"
#include "common/memory/ledger.h"
#include "common/watch/gpu_moment.h"

namespace sc {
namespace {

using Milliseconds = std::chrono::duration<double, std::milli>;

bool is_measured(CommKind kind) { return kind == CommKind::all_reduce || kind == CommKind::reduce_scatter; }

constexpr std::int64_t kAlignment = 512;  // in bytes

/// The bytes that the largest operation of `plan` needs: its whole tensor, followed by this rank's part.
std::int64_t room_of(const CommPlan& plan, std::int64_t world) {
  std::int64_t most = 0;
  for (const auto& [op, count] : plan.count) {
    const std::int64_t full = bytes_of(op.elements, op.dtype).value();
    if (is_measured(op.kind)) most = std::max(most, round_up(full, kAlignment) + ceil_div(full, world));
  }
  return most;
}

/// Memory of `bytes` on every rank, or on none if one rank has too little left.
at::Tensor room_on_all(Communicator& comm, std::int64_t bytes) {
  const auto options = at::TensorOptions().device(at::kCUDA);
  at::Tensor room;
  try {
    room = at::zeros({bytes}, options.dtype(at::kByte));
  } catch (const c10::OutOfMemoryError&) {
    room = at::Tensor();
  }
  at::Tensor have = at::full({1}, room.defined() ? 1.0 : 0.0, options.dtype(at::kDouble));
  comm.all_reduce(have, {OpPurpose::numbers}).wait();
  return have.item<double>() < to_int(comm.size()) ? at::Tensor() : room;
}

double milliseconds_alone(Communicator& comm, const Operation& op, const at::Tensor& room) {
  constexpr int kTimes = 10;
  const std::int64_t bytes = bytes_of(op.elements, op.dtype).value(), world = to_int(comm.size());
  at::Tensor full = room.narrow(0, 0, bytes).view(to_aten(op.dtype));
  at::Tensor shard = room.narrow(0, round_up(bytes, kAlignment), bytes / world).view(to_aten(op.dtype));
  const auto times = [&](int n) {
    for (int i = 0; i < n; ++i)
      (op.kind == CommKind::all_reduce ? comm.all_reduce(full) : comm.reduce_scatter(full, shard)).wait();
  };
  times(2);
  const auto began = gpu_origin().at;
  times(kTimes);
  return Milliseconds(gpu_origin().at - began).count() / kTimes;
}

std::string word_of(const Operation& op) {
  return fmt::format("{}:{}:{} ", static_cast<int>(op.kind), static_cast<int>(op.dtype), op.elements.value());
}

// The operations that this rank plans and all others too; any other would wait for ever.
CommPlan shared_by_all(Communicator& comm, const CommPlan& plan) {
  std::string mine;
  for (const auto& [op, count] : plan.count)
    if (op.ranks == comm.size() && is_measured(op.kind)) mine += word_of(op);
  std::map<std::string, std::int64_t> having;
  for (const std::string& text : gather_strings(comm, mine)) {
    std::istringstream words(text);
    for (std::string word; words >> word;) ++having[word];
  }
  std::string all;
  for (const auto& [word, ranks] : having)
    if (ranks == to_int(comm.size())) all += word + " ";
  all = " " + broadcast_string(comm, all);
  CommPlan shared;
  for (const auto& [op, count] : plan.count) {
    if (op.ranks == comm.size() && all.find(" " + word_of(op)) != std::string::npos) shared.count[op] = count;
  }
  return shared;
}

}  // namespace

std::vector<ProfileCommRow> communication_rows(std::span<const OpSpan> operations, std::int64_t first_step) {
  std::map<CommKind, ProfileCommRow> rows;
  for (const OpSpan& op : operations) {
    if (op.phase != Phase::train || op.step < first_step || !op.began || !op.ended) continue;
    ProfileCommRow& row = rows[op.op.kind];
    row.kind = op.op.kind;
    row.milliseconds += Milliseconds(*op.ended - *op.began).count();
    row.sent += op.sent;
    ++row.calls;
  }
  std::vector<ProfileCommRow> list;
  for (const auto& [kind, row] : rows) list.push_back(row);
  return list;
}

void measure_alone(Communicator& comm, const CommPlan& own, Profile& profile) {
  if (own.count.empty()) return;
  const CommPlan plan = shared_by_all(comm, own.without_names());
  const std::int64_t bytes = room_of(plan, to_int(comm.size()));
  const at::Tensor room = bytes == 0 ? at::Tensor() : room_on_all(comm, bytes);
  if (!room.defined()) return;
  std::map<CommKind, double> a_step;
  for (const auto& [op, count] : plan.count) {
    if (is_measured(op.kind))
      a_step[op.kind] += static_cast<double>(count) * milliseconds_alone(comm, op, room);
  }
  for (ProfileCommRow& row : profile.communication) {
    const auto found = a_step.find(row.kind);
    if (found != a_step.end()) row.alone = found->second * static_cast<double>(profile.steps);
  }
}

void add_communication(std::span<const StepRecord> steps, const CommPlan& plan, RecordingCommunicator& comm,
                       Profile& profile) {
  if (profile.steps == 0 || comm.size() == WorldSize{1} || steps.empty()) return;
  const std::int64_t first = steps.front().step + kWarmupSteps;
  for (const StepRecord& step : steps) {
    if (step.step >= first)
      profile.waited_milliseconds += step.waited_seconds * 1e3 / static_cast<double>(profile.steps);
  }
  profile.communication = communication_rows(comm.record().spans(), first);
  measure_alone(comm, plan, profile);
}

}  // namespace sc
