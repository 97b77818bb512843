// The seconds of runs whose ranks have a part of the model: stages, parts of matrices, or both.
#include <algorithm>

#include "lessons/08_weight_versions/endless.h"
#include "predict.h"

namespace sc::choose {
namespace {

double number(std::int64_t n) { return static_cast<double>(n); }

/// The seconds of a half of a block: the matrix that reads gathered tokens, the one that leaves a summand,
/// attention between them, and its messages.
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

// The seconds of what recompute computes and sends again: all but the MLP's second product and its sum.
double again_of(const HalfTimes& attention, const HalfTimes& mlp) {
  return attention.first + attention.behind_first() + attention.sum + attention.gather + mlp.gather +
         mlp.first;
}

/// The seconds of one micro-batch's passes on a tensor rank; with two lanes, of two micro-batches.
struct PartTimes {
  PassTimes block, embedding, head;
};

// The seconds of a message between tensor ranks: by copy engine within a node, else through the network
// cards.
double message(const MessageRate& rate, double bytes, const RunShape& shape, const Rates& rates) {
  if (rates.leaves_node(shape.mesh.size(Axis::tensor), 1))
    return rates.call(shape.mesh.size(Axis::tensor), 1, false) +
           bytes / rates.rate(shape.mesh.size(Axis::tensor), 1);
  return rate.call_seconds + bytes / rate.bytes;
}

PartTimes part_times(const RunShape& shape, TokenShare tokens_of, bool two, bool kept, const Rates& rates) {
  const Workload& w = shape.workload;
  const double t = number(shape.mesh.size(Axis::tensor)), d = number(w.model.width),
               length = number(w.batch.sequence), tokens = number(w.batch.micro) * length,
               e = number(size_of(w.precision.dtype)), bytes = (t - 1) / t * tokens * d * e;
  const bool split = tokens_of == TokenShare::split, again = split && !kept;
  const auto product = [&](double flops_a_token) {
    return flops_a_token * (tokens / t + rates.part_start_tokens) / rates.flops;
  };
  const CopyRates& copies = rates.by_copy(shape.mesh.size(Axis::tensor));
  const double gathered = message(copies.gather, bytes, shape, rates);
  const double sum = message(copies.sum, bytes, shape, rates) + (split ? 0 : gathered),  // or all_reduce
      gather = split ? gathered : 0;
  const HalfTimes attention{product(6 * d * d), product(2 * d * d), product(2 * length * d), sum, gather},
      mlp{product(8 * d * d), product(8 * d * d), 0, sum, gather};
  PartTimes p;
  for (const HalfTimes& half : {attention, mlp}) {
    p.block.forward += forward_of(half, two);
    p.block.backward += backward_of(half, two, again);
  }
  const double lanes = two ? 2 : 1, norm_again = 2 * d * e * tokens / t / rates.memory;
  if (again) p.block.backward += lanes * 2 * norm_again;
  if (w.activations == Activations::recompute) p.block.backward += lanes * again_of(attention, mlp);
  if (w.activations == Activations::recompute_gelu)
    p.block.backward += lanes * 16 * d * tokens / t / rates.memory;
  // The other lane's logits hide a lane's messages.
  const double logits = lanes * product(2 * number(w.model.vocab_padded()) * d);
  p.embedding = {sum, gather};
  p.head = {logits + gather, 2 * logits + sum};
  return p;
}

}  // namespace

double tensor_seconds(const RunShape& shape, const CommPlan& plan, const TensorParallelOptions& options,
                      const Rates& rates) {
  const bool two = options.lanes == 2;
  const PartTimes p = part_times(shape, options.tokens, two, options.kept(), rates);
  double others = 0;
  for (const auto& [op, count] : plan.count)
    if (op.purpose != OpPurpose::activations && op.purpose != OpPurpose::activation_gradients)
      others += number(count) * seconds_of(op, rates);
  const double blocks = number(shape.workload.model.layers) * (p.block.forward + p.block.backward),
               ends = p.embedding.forward + p.embedding.backward + p.head.forward + p.head.backward;
  return number(micro_batches_of(shape)) / (two ? 2 : 1) * (blocks + ends) + others +
         update_seconds(number(tensor_layout(shape).arena_size().value()), rates);
}

namespace {

/// Which tokens a rank has between the halves of its blocks, and how often a micro-batch gathers the loss'
/// statistics.
struct StageParts {
  TokenShare tokens = TokenShare::split;
  double statistics = 0;
};

// The seconds of a stage's passes with all its chunks. The head's forward is the beginning of backward.
PassTimes stage_times(const RunShape& shape, std::int64_t blocks, bool first, bool last,
                      const StageParts& parts, const Rates& rates) {
  if (shape.mesh.size(Axis::tensor) == 1) {
    const PassTimes all = pass_times(shape.workload, blocks, last, rates);
    const double forward = pass_times(shape.workload, blocks, false, rates).forward;
    return {forward, all.forward + all.backward - forward};
  }
  const PartTimes p = part_times(shape, parts.tokens, false, false, rates);
  PassTimes times{number(blocks) * p.block.forward, number(blocks) * p.block.backward};
  if (first) times.forward += p.embedding.forward, times.backward += p.embedding.backward;
  if (last) times.backward += p.head.forward + p.head.backward + parts.statistics * rates.call_seconds;
  return times;
}

// The seconds of what a stage does after its last backward.
double end_of_step(const RunShape& shape, const Share& share, double parameters, bool end, double backward,
                   const Rates& rates) {
  const Workload& w = shape.workload;
  const std::int64_t r = share.replicas, t = shape.mesh.size(Axis::tensor), stages = share.schedule.stages;
  const double size = number(size_of(w.precision.dtype)),
               one_way = number(r - 1) / number(r) * parameters * size;
  const bool sharded = share.shards > 1;
  double seconds = update_seconds(parameters / number(share.shards), rates);
  if (r > 1) {
    const double way = rates.call(r, t, false) + one_way / rates.rate(r, t);
    seconds += together(backward, sharded ? way : 2 * way, rates) - backward;
    if (sharded) seconds += way;
  }
  if (end && stages > 1 && w.model.tied)
    seconds += number(w.model.vocab_padded() * w.model.width) / number(t) * size / number(share.shards) /
               rates.rate(2, (stages - 1) * r * t);
  if (t > 1) {
    const double whole = number(share.whole.size()) * size;
    seconds += rates.call(t, 1, true) + 2 * number(t - 1) / number(t) * whole / rates.rate(t, 1) +
               rates.call(to_int(shape.mesh.world()), 1, true);  // and the world's numbers
  }
  return seconds;
}

// The costs of every stage, for pipedream::simulate.
pipedream::Costs costs_of(const RunShape& shape, const Share& share, const StageParts& parts,
                          const Rates& rates) {
  const Workload& w = shape.workload;
  const double d = number(w.model.width), t = number(shape.mesh.size(Axis::tensor)),
               block = 12 * d * d + 13 * d, matrix = number(w.model.vocab_padded()) * d;
  const int stages = share.schedule.stages;
  pipedream::Costs costs;
  costs.times.clear();
  costs.message_bytes = number(share.message) * number(size_of(w.precision.dtype));
  costs.latency = rates.call_seconds;
  const std::int64_t ranks = to_int(shape.mesh.world()) / stages;  // of a stage
  const auto node_of = [&](std::int64_t rank) { return rank % to_int(shape.mesh.world()) / rates.node; };
  for (int stage = 0; stage < stages; ++stage) {
    const std::int64_t first_rank = stage * ranks, last_rank = first_rank + ranks - 1;
    const bool leaves = node_of(first_rank) != node_of(first_rank + ranks) ||
                        node_of(last_rank) != node_of(last_rank + ranks);
    costs.bandwidths.push_back(leaves ? std::min(rates.link, rates.node_link) : rates.link);
  }
  for (int stage = 0; stage < stages; ++stage) {
    std::int64_t blocks = 0;
    for (int position = stage; position < share.schedule.positions(); position += stages)
      blocks += share.part(position).blocks;
    const bool first = stage == 0, last = stage + 1 == stages;
    const PassTimes pass = stage_times(shape, blocks, first, last, parts, rates);
    const double weights = std::min(pass.forward, pass.backward / 2),
                 parameters = (number(blocks) * block + (first || last ? matrix : 0)) / t;
    costs.times.push_back({pass.forward, pass.backward - weights, weights,
                           end_of_step(shape, share, parameters, first || last, pass.backward, rates)});
  }
  return costs;
}

StageParts parts_of(const RunShape& shape, const Share& share, const CombinedOptions& options) {
  if (shape.mesh.size(Axis::tensor) == 1) return {options.tokens};
  const PartSizes sizes = part_sizes_of(shape, share, options);
  return {options.tokens, number(ceil_div(sizes.N, sizes.chunk))};
}

}  // namespace

double pipeline_seconds(const RunShape& shape, const PipelineOptions& options, const Rates& rates) {
  const Share share = share_of(shape, options);
  return pipedream::simulate(share.schedule, costs_of(shape, share, {}, rates)).makespan;
}

double endless_seconds(const RunShape& shape, const VersionOptions& options, const Rates& rates) {
  const Endless endless(shape, options);
  return rates.eager * endless.steps().time_by(costs_of(shape, endless.share, {}, rates)).seconds;
}

double combined_seconds(const RunShape& shape, const CombinedOptions& options, const Rates& rates) {
  const Share share = share_of(shape, options);
  return pipedream::simulate(share.schedule, costs_of(shape, share, parts_of(shape, share, options), rates))
      .makespan;
}

double stages_take_at_least(const RunShape& shape, TokenShare tokens, const Rates& rates) {
  const std::int64_t blocks = ceil_div(shape.workload.model.layers, shape.mesh.size(Axis::stages));
  const PassTimes pass = stage_times(shape, blocks, false, false, {tokens}, rates);
  return number(micro_batches_of(shape)) * (pass.forward + pass.backward);
}

}  // namespace sc::choose
