#include "predict.h"

#include <algorithm>

#include "lessons/08_weight_versions/endless.h"

namespace sc::choose {
namespace {

// Bytes that a rank copies, or moves over the disk, in operations of these kinds.
double bytes_in(const CommPlan& plan, std::initializer_list<CommKind> kinds) {
  double sum = 0;
  for (const auto& [op, count] : plan.without_names().count)
    if (std::ranges::find(kinds, op.kind) != kinds.end())
      sum += static_cast<double>((bytes_of(op.elements, op.dtype) * count).value());
  return sum;
}

// Seconds of these kinds of operations between GPUs: each of them a call, and its bytes over the link.
double seconds_in(const CommPlan& plan, std::initializer_list<CommKind> kinds, const Rates& rates) {
  double sum = 0;
  for (const auto& [op, count] : plan.without_names().count) {
    const auto bytes = static_cast<double>(wire_bytes(op).value());
    if (bytes > 0 && std::ranges::find(kinds, op.kind) != kinds.end())
      sum += static_cast<double>(count) * (rates.call_seconds + bytes / rates.link);
  }
  return sum;
}

// With the slices' padding.
double parameters_of(const RunShape& shape) {
  return static_cast<double>(ParamLayout(shape.workload.model, shape.world).arena_size().value());
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

double update_seconds(double parameters, const Rates& rates) { return 30 * parameters / rates.memory; }

double step_seconds(const RunShape& shape, const CommPlan& plan, const Overlap& overlap, const Rates& rates) {
  const auto world = static_cast<double>(to_int(shape.world)),
             m = static_cast<double>(micro_batches_of(shape));
  const PassTimes pass = pass_times(shape.workload, shape.workload.model.layers, true, rates);
  const double reduce = seconds_in(plan, {CommKind::all_reduce, CommKind::reduce_scatter}, rates),
               gather = seconds_in(plan, {CommKind::all_gather}, rates);
  const double each_gather = overlap.gathers_in_each ? gather / (2 * m) : 0,
               each_reduce = overlap.reduces_in_each ? reduce / m : 0;
  double first = std::max(pass.forward, overlap.gathers_in_each ? each_gather : gather);
  const double others = (m - 1) * (std::max(pass.forward, each_gather) +
                                   std::max(pass.backward, each_gather + each_reduce)),
               last = std::max(pass.backward, each_gather + (overlap.reduces_in_each ? each_reduce : reduce));
  const double parameters = parameters_of(shape);
  if (overlap.updates == Updates::on_gpu)
    return first + others + last +
           update_seconds(overlap.whole_update ? parameters : parameters / world, rates);
  const double down = bytes_in(plan, {CommKind::to_host}) / rates.host_link,
               up = bytes_in(plan, {CommKind::to_device}) / rates.host_link, adam = parameters / rates.adam,
               disk_bytes = world * bytes_in(plan, {CommKind::disk_read, CommKind::disk_write}),
               disk = disk_bytes > 0 ? disk_bytes / rates.disk : 0;
  if (overlap.updates == Updates::on_host_late)
    return std::max({first + others + last, adam, down, up, disk});
  first = std::max({first, adam, disk, up, down - last});
  return first + others + last;
}

namespace {

// Every stage's part of the model, with all its chunks; what its step updates, and what replicas still sum when the last
// backward is done.
pipedream::Costs costs_of(const RunShape& shape, const Share& share, const Rates& rates) {
  const Workload& w = shape.workload;
  const auto d = static_cast<double>(w.model.width), r = static_cast<double>(share.replicas);
  const double block = 12 * d * d + 13 * d, matrix = static_cast<double>(w.model.vocab_padded()) * d,
               size = static_cast<double>(size_of(w.precision.dtype));
  pipedream::Costs costs;
  costs.times.clear();
  costs.message_bytes = static_cast<double>(w.batch.micro * w.batch.sequence) * d * size;
  costs.latency = rates.call_seconds;
  costs.bandwidth = rates.link;
  const int stages = share.schedule.stages;
  for (int stage = 0; stage < stages; ++stage) {
    std::int64_t blocks = 0;
    for (int position = stage; position < share.schedule.positions(); position += stages)
      blocks += share.part(position).blocks;
    const bool last = stage + 1 == stages, end = stage == 0 || last;
    const PassTimes pass = pass_times(w, blocks, last, rates);
    const double weights = pass.forward,
                 parameters = static_cast<double>(blocks) * block + (end ? matrix : 0);
    const double reduce = 2 * (r - 1) / r * parameters * size / rates.link,
                 tied = end && stages > 1 && w.model.tied ? matrix * size / rates.link : 0;
    costs.times.push_back({pass.forward, pass.backward - weights, weights,
                           update_seconds(parameters / static_cast<double>(share.shards), rates) + tied +
                               std::max(0.0, reduce - pass.backward)});
  }
  return costs;
}

}  // namespace

double pipeline_seconds(const RunShape& shape, const PipelineOptions& options, const Rates& rates) {
  const Share share = share_of(shape, options);
  return pipedream::simulate(share.schedule, costs_of(shape, share, rates)).makespan;
}

double endless_seconds(const RunShape& shape, const VersionOptions& options, const Rates& rates) {
  const Endless endless(shape, options);
  return endless.steps().time_by(costs_of(shape, endless.share, rates)).seconds;
}

namespace {

/// Seconds of a half of a block: the matrix that reads gathered tokens, the one that leaves a summand, attention between them, and
/// its messages.
struct HalfTimes {
  double first = 0, second = 0, attention = 0, sum = 0, gather = 0;
  [[nodiscard]] double behind_first() const { return attention + second; }
  [[nodiscard]] double to_norm() const { return first + second + 2 * attention; }  // of backward
};

double left_of(double message, double hidden_behind) { return std::max(0.0, message - hidden_behind); }

double forward_of(const HalfTimes& h, bool two) {
  const double products = h.first + h.behind_first();
  if (!two) return products + h.gather + h.sum;
  return 2 * (products + left_of(h.sum, h.first) + left_of(h.gather, h.behind_first()));
}

double backward_of(const HalfTimes& h, bool two, bool again) {
  const double products = h.to_norm() + h.first + h.second,
               norms = again ? left_of(h.gather, h.to_norm()) : 0;
  if (!two) return products + left_of(h.sum, h.second) + left_of(h.gather, h.first) + norms;
  return 2 * (products + norms) + left_of(h.sum, h.to_norm() + h.second) + left_of(h.sum, 2 * h.second) +
         left_of(h.gather, h.second + 2 * h.first) + left_of(h.gather, 2 * h.first);
}

// What recompute computes and sends again: all but the MLP's second product and its sum.
double again_of(const HalfTimes& attention, const HalfTimes& mlp) {
  return attention.first + attention.behind_first() + attention.sum + attention.gather + mlp.gather +
         mlp.first;
}

}  // namespace

double tensor_seconds(const RunShape& shape, const CommPlan& plan, const TensorParallelOptions& options,
                      const Rates& rates) {
  const Workload& w = shape.workload;
  const auto t = static_cast<double>(shape.tensor), d = static_cast<double>(w.model.width),
             length = static_cast<double>(w.batch.sequence),
             tokens = static_cast<double>(w.batch.micro) * length,
             blocks = static_cast<double>(w.model.layers),
             e = static_cast<double>(size_of(w.precision.dtype));
  const auto product = [&](double flops_a_token) {
    return flops_a_token * (tokens / t + rates.part_start_tokens) / rates.flops;
  };
  const auto message = [&](const MessageRate& rate) {
    return rate.call_seconds + (t - 1) / t * tokens * d * e / rate.bytes;
  };
  const bool split = options.tokens == TokenShare::split, two = options.lanes == 2,
             again = split && !options.kept();
  const double gather = split ? message(rates.gather) : 0,
               sum = message(rates.sum) + (split ? 0 : message(rates.gather));  // all_reduce
  const HalfTimes attention{product(6 * d * d), product(2 * d * d), product(2 * length * d), sum, gather},
      mlp{product(8 * d * d), product(8 * d * d), 0, sum, gather};
  double block = 0;  // of one micro-batch, or of a pair
  for (const HalfTimes& half : {attention, mlp})
    block += forward_of(half, two) + backward_of(half, two, again);
  const double lanes = two ? 2 : 1, of_block = 2 * d * e * tokens / t / rates.memory;  // a norm made again
  if (again) block += lanes * 2 * of_block;
  if (w.activations == Activations::recompute) block += lanes * again_of(attention, mlp);
  if (w.activations == Activations::recompute_gelu) block += lanes * 16 * d * tokens / t / rates.memory;
  const double ends = lanes * 3 * product(2 * static_cast<double>(w.model.vocab_padded()) * d) + 2 * sum +
                      2 * gather;  // a lane's messages behind the other's logits
  double others = 0;
  for (const auto& [op, count] : plan.count)
    if (op.purpose != OpPurpose::activations && op.purpose != OpPurpose::activation_gradients)
      others += static_cast<double>(count) *
                (rates.call_seconds + static_cast<double>(wire_bytes(op).value()) / rates.link);
  return static_cast<double>(micro_batches_of(shape)) / lanes * (blocks * block + ends) + others +
         update_seconds(static_cast<double>(tensor_layout(shape).arena_size().value()), rates);
}

}  // namespace sc::choose
