// The host's buffers of lesson 05, taken from the ledger as offload_plan.cpp has declared them.
#include "offload.h"

namespace sc {
namespace {

NormIs norm_of(const RunShape& shape, UpdateKind update) {
  if (update == UpdateKind::early) return NormIs::guessed;
  return update == UpdateKind::exact && needs_no_norm(shape.workload) ? NormIs::not_needed : NormIs::needed;
}

}  // namespace

Offload::Offload(RunContext& context, const Options& options)
    : HostStrategy(context, options, Plans(options).memory_plan(context.shape)),
      options_(options),
      norm_(norm_of(context.shape, options.update)) {
  // [anchor: states-on-the-host]
  // The host has 12 bytes of states per parameter (8 in fp32, where the master is what goes back), its
  // gradient and the rounded parameter; resident units have none of this there. update=early has the states
  // twice, until the norm is known. update=delayed has the gradients twice: an update still reads them while
  // the next ones land. Every buffer has the pieces one after the other, in forward's order.
  const int turns = options.update == UpdateKind::delayed ? 2 : 1, halves = halves_of(options);
  const bool rounds = context.shape.workload.precision.has_master();
  const at::Tensor grads = buffers_.zeros("grads_host"), params = buffers_.zeros("params_host"),
                   master = rounds ? buffers_.zeros("master_host") : params,
                   momentum = buffers_.zeros("momentum_host"), variance = buffers_.zeros("variance_host");
  const std::int64_t n = grads.numel() / turns;
  std::vector<Piece> pieces = cut_pieces(layout_, context.comm.rank(), options.piece, options.resident);
  std::vector<StatesInMemory::Of> states;
  std::vector<at::Tensor> destinations;
  std::int64_t begin = 0;
  for (const Piece& p : pieces) {
    const auto part = [&](const at::Tensor& of, std::int64_t at = 0) {
      return of.narrow(0, at + begin, p.range.size());
    };
    OnHost host;
    for (int turn : {0, 1}) host.grads[turn] = part(grads, turn % turns * n);
    const auto half = [&](std::int64_t i) {
      return PieceStates{part(master, i * n), part(momentum, i * n), part(variance, i * n)};
    };
    states.push_back({half(0), halves == 2 ? std::optional(half(1)) : std::nullopt});
    at::Tensor& first = states.back().now.master;
    init_slice(layout_, p.unit, Segment::sharded, p.range, context.shape.workload.seed, first);
    if (rounds) host.params = part(params), host.params.copy_(first);
    destinations.push_back(host.params);
    host_.push_back(std::move(host));
    begin += p.range.size();
  }
  states_ = std::make_unique<StatesInMemory>(std::move(states));
  params_ = std::make_unique<ParamsInMemory>(std::move(destinations));
  optimizer_ =
      std::make_unique<HostOptimizer>(std::move(pieces), hyper_of(context.shape.workload.optim),
                                      adam_threads(options, context.shape.mesh.world()), *states_, *params_);
}

}  // namespace sc
