// The host's memory of lesson 05: planned, and then allocated.
#include "offload.h"

namespace sc {

void Offload::plan_host(const RunShape& shape, const Options& options, MemoryPlan& plan) {
  const PrecisionConfig& precision = shape.workload.precision;
  const ParamLayout layout(shape.workload.model, shape.world);
  const Elements slice = layout.arena_size() / to_int(shape.world);
  const auto add = [&](Purpose purpose, const std::string& name, const std::string& of, Elements elements,
                       DType dtype, Place place) {
    plan.add(purpose, name, std::to_string(size_of(dtype)) + of, bytes_of(elements, dtype), place);
  };
  const int turns = options.update == UpdateKind::delayed ? 2 : 1;
  add(Purpose::gradients, "grads_host", turns == 2 ? " x 2 P/N" : " P/N", slice * turns, precision.grad_dtype,
      Place::pinned);
  add(Purpose::parameters, "params_host", " P/N", slice, precision.dtype, Place::pinned);
  if (precision.has_master()) add(Purpose::master, "master_host", " P/N", slice, DType::f32, Place::host);
  add(Purpose::momentum, "momentum_host", " P/N", slice, DType::f32, Place::host);
  add(Purpose::variance, "variance_host", " P/N", slice, DType::f32, Place::host);
}

namespace {

// [anchor: states-on-the-host]
// The host: 12 bytes a parameter of states (8 in fp32, where the master is what goes back), its gradient, and the
// rounded parameters. Pieces follow each other as units and their slices do.
std::unique_ptr<PieceUpdates> in_host_memory(const OffloadOptions& options, RunContext& context,
                                             const ParamLayout& layout, std::vector<Piece> pieces) {
  const PrecisionConfig& precision = context.shape.workload.precision;
  const std::int64_t n = layout.arena_size().value() / to_int(context.shape.world);
  const int turns = options.update == UpdateKind::delayed ? 2 : 1;
  const auto flat = [&](Purpose purpose, const char* name, std::int64_t size, DType dtype, Place place) {
    return context.ledger.zeros(purpose, name, {size}, dtype, place);
  };
  const at::Tensor grads =
                       flat(Purpose::gradients, "grads_host", n * turns, precision.grad_dtype, Place::pinned),
                   params = flat(Purpose::parameters, "params_host", n, precision.dtype, Place::pinned),
                   master = precision.has_master()
                                ? flat(Purpose::master, "master_host", n, DType::f32, Place::host)
                                : params,
                   momentum = flat(Purpose::momentum, "momentum_host", n, DType::f32, Place::host),
                   variance = flat(Purpose::variance, "variance_host", n, DType::f32, Place::host);
  std::int64_t begin = 0;
  for (Piece& p : pieces) {
    const auto part = [&](const at::Tensor& of, std::int64_t at = 0) {
      return of.narrow(0, at + begin, p.range.size());
    };
    for (int turn = 0; turn < turns; ++turn) p.grads[turn] = part(grads, turn * n);
    p.master = part(master), p.momentum = part(momentum), p.variance = part(variance);
    p.params = precision.has_master() ? part(params) : p.master;
    init_slice(layout, p.unit, Segment::sharded, p.range, context.shape.workload.seed, p.master);
    if (precision.has_master()) p.params.copy_(p.master);
    begin += p.range.size();
  }
  return std::make_unique<HostUpdate>(std::move(pieces), hyper_of(context.shape.workload.optim),
                                      Offload::threads_of(options, context.shape.world));
}

}  // namespace

Offload::Offload(RunContext& context, const Options& options)
    : Offload(context, options, {}, [&](const ParamLayout& layout, std::vector<Piece> pieces) {
        return in_host_memory(options, context, layout, std::move(pieces));
      }) {}

}  // namespace sc
