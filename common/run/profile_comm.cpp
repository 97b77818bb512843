#include "common/run/profile_comm.h"

#include <ATen/ops/zeros.h>

#include <chrono>
#include <map>

#include "common/comm/gpu_moment.h"
#include "common/memory/ledger.h"

namespace sc {
namespace {

using Milliseconds = std::chrono::duration<double, std::milli>;

Ticket issue(Communicator& comm, CommKind kind, at::Tensor& full, at::Tensor& shard) {
  if (kind == CommKind::all_reduce) return comm.all_reduce(full);
  return kind == CommKind::reduce_scatter ? comm.reduce_scatter(full, shard) : comm.all_gather(shard, full);
}

bool is_measured(CommKind kind) {
  return kind == CommKind::all_reduce || kind == CommKind::reduce_scatter || kind == CommKind::all_gather;
}

double milliseconds_alone(Communicator& comm, const CommOp& op) {
  constexpr int kTimes = 10;
  const auto options = at::TensorOptions().device(at::kCUDA).dtype(to_aten(op.dtype));
  at::Tensor full = at::zeros({op.elements.value()}, options);
  at::Tensor shard = at::zeros({op.elements.value() / to_int(comm.size())}, options);
  const auto times = [&](int n) {
    for (int i = 0; i < n; ++i) issue(comm, op.kind, full, shard).wait();
  };
  times(2);
  const auto began = gpu_origin().at;
  times(kTimes);
  return Milliseconds(gpu_origin().at - began).count() / kTimes;
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

void measure_alone(Communicator& comm, const CommPlan& plan, Profile& profile) {
  std::map<CommKind, double> a_step;
  for (const auto& [op, count] : plan.count) {
    if (is_measured(op.kind)) a_step[op.kind] += static_cast<double>(count) * milliseconds_alone(comm, op);
  }
  for (ProfileCommRow& row : profile.communication) {
    const auto found = a_step.find(row.kind);
    if (found != a_step.end()) row.alone = found->second * static_cast<double>(profile.steps);
  }
}

}  // namespace sc
