#include "pipedream/formulas.h"

#include <algorithm>

namespace sc::pipedream {

namespace {

// The bubble formulas of interleaved 1F1B and ZB-H1 assume that the stages' rounds are full.
bool full_rounds(const GenerateOptions& o) {
  return o.family == Family::interleaved ? o.chunks > 1 && o.microbatches % o.stages == 0
                                         : o.chunks == 1 && o.microbatches >= o.stages;
}

}  // namespace

std::optional<double> formula_makespan(const GenerateOptions& o, const StageTimes& t) {
  const double both = t.forward + t.backward();
  const double m = o.microbatches;
  const double behind = o.stages - 1;
  switch (o.family) {
    case Family::naive:
      return o.batches * m * o.stages * both;
    case Family::gpipe:
    case Family::one_f_one_b:
      return o.batches * (m + behind) * both;
    case Family::interleaved:
      if (!full_rounds(o)) return std::nullopt;
      return o.batches * (m + behind / o.chunks) * both;
    case Family::zb_h1:
      if (!full_rounds(o) || t.forward != t.backward_input || t.forward != t.backward_weights)
        return std::nullopt;
      return o.batches * (m * both + behind * (t.forward + t.backward_input - t.backward_weights));
    case Family::pipedream:
    case Family::two_bw:
      return (o.batches * m + behind) * both;
  }
  return std::nullopt;
}

std::optional<int> formula_activations(const GenerateOptions& o, int stage) {
  const int below = o.stages - stage;
  switch (o.family) {
    case Family::naive:
      return 1;
    case Family::gpipe:
      return o.microbatches;
    case Family::one_f_one_b:
      return std::min(o.microbatches, below + (below > 1 ? o.warmup : 0));
    case Family::interleaved:
      if (!full_rounds(o)) return std::nullopt;
      return std::min(o.chunks * o.microbatches, (o.chunks - 1) * o.stages + 2 * (below - 1) + 1);
    case Family::zb_h1:
      if (o.chunks > 1) return std::nullopt;
      return std::min(o.microbatches, o.stages);
    case Family::pipedream:
    case Family::two_bw:
      return std::min(o.batches * o.microbatches, below);
  }
  return std::nullopt;
}

double pipeline_bytes(double microbatches, double micro_batch, double sequence, double hidden) {
  return 4 * microbatches * micro_batch * sequence * hidden;
}

double zero3_most_bytes(double accumulation, double parameters, double ranks) {
  return 6 * accumulation * parameters * (ranks - 1) / ranks;
}

double zero3_least_bytes(double accumulation, double parameters, double ranks) {
  return (2 * accumulation + 2) * parameters * (ranks - 1) / ranks;
}

}  // namespace sc::pipedream
