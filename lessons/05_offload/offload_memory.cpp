// What lesson 05 takes from the ledger on the device and on the host, as offload_plan.cpp says.
#include "offload.h"

namespace sc {

Offload::Offload(RunContext& context, const Options& options)
    : context_(context),
      options_(options),
      layout_(context.shape.workload.model, context.shape.world),
      passes_(context, layout_),
      sums_(passes_.sums()),
      units_(context, layout_, options, {}),
      scalars_(units_.scalars(),
               context.ledger.zeros(Purpose::workspace, "scalars_host", {8}, DType::f64, Place::pinned)),
      clock_{.delayed = options.update == UpdateKind::delayed,
             .warm_steps = options.warm_steps,
             .first_step = context.first_step},
      needs_no_norm_(options.update == UpdateKind::exact && needs_no_norm(context.shape.workload)),
      step_(context.first_step) {
  // [anchor: states-on-the-host]
  // The host: 12 bytes a parameter of states (8 in fp32, where the master is what goes back), its gradient,
  // and the rounded parameters; of units that are not resident. Pieces follow each other as units and their slices do.
  const PrecisionConfig& precision = context.shape.workload.precision;
  const std::int64_t n = slice_on_host(layout_, options).value();
  const int turns = options.update == UpdateKind::delayed ? 2 : 1;
  const auto flat = [&](Purpose purpose, const char* name, std::int64_t size, DType dtype, Place place) {
    return context.ledger.zeros(purpose, name, {size}, dtype, place);
  };
  const bool rounds = precision.has_master();
  const at::Tensor grads =
                       flat(Purpose::gradients, "grads_host", n * turns, precision.grad_dtype, Place::pinned),
                   params = flat(Purpose::parameters, "params_host", n, precision.dtype, Place::pinned),
                   master =
                       rounds ? flat(Purpose::master, "master_host", n, DType::f32, Place::host) : params,
                   momentum = flat(Purpose::momentum, "momentum_host", n, DType::f32, Place::host),
                   variance = flat(Purpose::variance, "variance_host", n, DType::f32, Place::host);
  std::vector<Piece> pieces = cut_pieces(layout_, context.comm.rank(), options.piece, options.resident);
  std::vector<PieceStates> states;
  std::vector<at::Tensor> destinations;
  std::int64_t begin = 0;
  for (const Piece& p : pieces) {
    const auto part = [&](const at::Tensor& of, std::int64_t at = 0) {
      return of.narrow(0, at + begin, p.range.size());
    };
    OnHost host;
    // A delayed update still reads its gradients while the next ones land.
    for (int turn : {0, 1}) host.grads[turn] = part(grads, turn % turns * n);
    host.states = {part(master), part(momentum), part(variance)};
    host.params = rounds ? part(params) : host.states.master;
    init_slice(layout_, p.unit, Segment::sharded, p.range, context.shape.workload.seed, host.states.master);
    if (rounds) host.params.copy_(host.states.master);
    states.push_back(host.states);
    destinations.push_back(rounds ? host.params : at::Tensor());
    host_.push_back(std::move(host));
    begin += p.range.size();
  }
  states_ = std::make_unique<StatesInMemory>(std::move(states));
  params_ = std::make_unique<ParamsInMemory>(std::move(destinations));
  optimizer_ =
      std::make_unique<HostOptimizer>(std::move(pieces), hyper_of(context.shape.workload.optim),
                                      adam_threads(options, context.shape.world), *states_, *params_);
}

}  // namespace sc
