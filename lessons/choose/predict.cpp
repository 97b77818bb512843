#include "predict.h"

#include <algorithm>
#include <optional>

#include "common/offload/host_plan.h"

namespace sc::choose {
namespace {

// The bytes that a rank copies, or moves to or from a disk, in operations of these kinds, for one unit or for
// all.
double bytes_in(const CommPlan& plan, std::initializer_list<CommKind> kinds, std::optional<int> unit = {}) {
  double sum = 0;
  for (const auto& [op, count] : plan.count)
    if (op.unit == unit.value_or(op.unit) && std::ranges::find(kinds, op.kind) != kinds.end())
      sum += static_cast<double>((bytes_of(op.elements, op.dtype) * count).value());
  return sum;
}

// Whether a stage's message, an output for the next position or its gradient for the one before, goes to
// another node.
bool message_leaves(const RunShape& shape, const Operation& op, const Rates& rates) {
  const std::int64_t world = to_int(shape.mesh.world()), rank = to_int(shape.rank),
                     stage = world / shape.mesh.size(Axis::stages),
                     way = op.purpose == OpPurpose::activations ? stage : world - stage;
  return rank / rates.node != (rank + way) % world / rates.node;
}

// The seconds of a rank's operations of these kinds, for one unit or for all.
double seconds_in(const CommPlan& plan, std::initializer_list<CommKind> kinds, const Rates& rates,
                  std::optional<int> unit = {}) {
  double sum = 0;
  for (const auto& [op, count] : plan.count) {
    if (op.unit == unit.value_or(op.unit) && wire_bytes(op).value() > 0 &&
        std::ranges::find(kinds, op.kind) != kinds.end())
      sum += static_cast<double>(count) * seconds_of(op, rates);
  }
  return sum;
}

// The number of parameters in the first units, in forward's order, with the slices' padding.
double parameters_of(const ParamLayout& layout, std::int64_t units) {
  std::int64_t elements = 0;
  for (int unit = 0; unit < std::min<std::int64_t>(units, layout.num_units()); ++unit)
    elements += layout.unit(unit).size(Segment::sharded);
  return static_cast<double>(elements);
}

}  // namespace

PassTimes pass_times(const Workload& workload, std::int64_t blocks, bool head, const Rates& rates) {
  const GptConfig& m = workload.model;
  const auto d = static_cast<double>(m.width), t = static_cast<double>(workload.batch.sequence);
  const double tokens = static_cast<double>(workload.batch.micro) * t,
               n = static_cast<double>(blocks) * (tokens + rates.start_tokens) / rates.flops;
  const double of_blocks = n * (24 * d * d + 2 * t * d),
               of_head = head ? 2 * static_cast<double>(m.vocab_padded()) * d *
                                    (tokens + rates.start_tokens) / rates.flops
                              : 0;
  PassTimes times{of_blocks + of_head, 2 * (of_blocks + of_head)};
  if (workload.activations == Activations::recompute) times.backward += of_blocks;
  if (workload.activations == Activations::recompute_gelu)
    times.backward += 16 * d * tokens * static_cast<double>(blocks) / rates.memory;
  return times;
}

double seconds_of(const Operation& op, const Rates& rates) {
  const auto bytes = static_cast<double>(wire_bytes(op).value());
  const std::int64_t ranks = to_int(op.ranks);
  const bool by_copy = op.kind == CommKind::all_gather && !rates.leaves_node(ranks, op.stride);
  return rates.call(ranks, op.stride, op.kind == CommKind::all_reduce) +
         bytes / rates.rate(ranks, op.stride) -
         (by_copy ? rates.call_seconds - rates.by_copy(ranks).gather.call_seconds : 0);
}

double together(double compute, double messages, const Rates& rates) {
  return std::max(compute, messages) + rates.taken * std::min(compute, messages);
}

double update_seconds(double parameters, const Rates& rates) { return 30 * parameters / rates.memory; }

double node_bytes(const RunShape& shape, const CommPlan& plan, const Rates& rates) {
  double sum = 0;
  for (const auto& [op, count] : plan.count) {
    const auto bytes = static_cast<double>(count) * static_cast<double>(wire_bytes(op).value());
    const std::int64_t ranks = to_int(op.ranks);
    if (op.kind == CommKind::send)
      sum += message_leaves(shape, op, rates) ? bytes : 0;
    else if (rates.leaves_node(ranks, op.stride))
      sum += bytes / static_cast<double>(rates.members_in_node(ranks, op.stride));
  }
  return sum;
}

double step_seconds(const RunShape& shape, const CommPlan& plan, const Overlap& overlap, const Rates& rates) {
  const auto world = static_cast<double>(to_int(shape.mesh.world())),
             m = static_cast<double>(micro_batches_of(shape));
  const double eager = overlap.updates == Updates::on_gpu ? 1 : rates.eager_host;
  const auto passes_of = [&](std::int64_t blocks) {
    const PassTimes replayed = pass_times(shape.workload, blocks, true, rates);
    return PassTimes{eager * replayed.forward, eager * replayed.backward};
  };
  const PassTimes pass = passes_of(shape.workload.model.layers);
  const double scatter = seconds_in(plan, {CommKind::reduce_scatter}, rates),
               once = seconds_in(plan, {CommKind::all_reduce}, rates),
               gather = seconds_in(plan, {CommKind::all_gather}, rates);
  const double each_gather = overlap.gathers_in_each ? gather / (2 * m) : 0,
               each_reduce = overlap.reduces_in_each ? scatter / m : 0;
  const double passes = overlap.reduces_in_each ? m : 1,
               tail = seconds_in(plan, {CommKind::reduce_scatter}, rates, 0) / passes +
                      seconds_in(plan, {CommKind::all_reduce}, rates, 0),
               head =
                   seconds_in(plan, {CommKind::all_gather}, rates, 0) / (overlap.gathers_in_each ? 2 * m : 1);
  double first =
      head + together(pass.forward, (overlap.gathers_in_each ? each_gather : gather) - head, rates);
  const double others = (m - 1) * (together(pass.forward, each_gather, rates) +
                                   together(pass.backward, each_gather + each_reduce, rates)),
               last = tail +
                      together(pass.backward,
                               each_gather + (overlap.reduces_in_each ? each_reduce : scatter) + once - tail,
                               rates);
  const ParamLayout layout(shape.workload.model, shape.mesh.world());
  const auto parameters = static_cast<double>(layout.arena_size().value());
  if (overlap.updates == Updates::on_gpu)
    return first + others + last +
           update_seconds(parameters / (overlap.slices > 0 ? static_cast<double>(overlap.slices) : world),
                          rates);
  const double kept = parameters_of(layout, overlap.resident), update = update_seconds(kept / world, rates),
               down = bytes_in(plan, {CommKind::to_host}) / rates.host_link,
               down_0 = bytes_in(plan, {CommKind::to_host}, 0) / rates.host_link,
               up_0 = bytes_in(plan, {CommKind::to_device}, 0) / rates.host_link,
               up = bytes_in(plan, {CommKind::to_device}) / rates.host_link,
               adam = (parameters - kept) /
                      (overlap.updates == Updates::on_host_early ? rates.adam_early : rates.adam),
               disk_bytes = world * bytes_in(plan, {CommKind::disk_read, CommKind::disk_write}),
               disk = disk_bytes > 0 ? disk_bytes / rates.disk : 0;
  const double gradients = std::max(last + down_0, down);
  if (overlap.updates == Updates::on_host_late)
    return std::max({up_0 + first + others + gradients + update, adam, up, disk});
  if (overlap.updates == Updates::on_host_early || (disk_bytes == 0 && needs_no_norm(shape.workload))) {
    const double unit_0 = adam * parameters_of(layout, 1) / (parameters - kept);
    first = std::max(first + (overlap.resident == 0 ? unit_0 : 0), passes_of(1).backward + adam - gradients);
    return std::max(first, up) + others + gradients + update;
  }
  return std::max({first, adam, disk, up}) + others + gradients + update;
}

}  // namespace sc::choose
