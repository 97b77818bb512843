// What lesson 06 takes from the ledger, as infinity_plan.cpp says: the window and what lies beside it on the
// host, and the file on the disk.
#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>

#include "common/comm/gather_text.h"
#include "infinity.h"
#include "params_on_disk.h"
#include "window_plan.h"

namespace sc {
namespace {

// What a machine refuses, once for all ranks that say the same as the first one.
void say(const std::vector<std::string>& notes, Communicator& comm) {
  const std::string mine = fmt::format("{}", fmt::join(notes, "\n")), first = broadcast_string(comm, mine);
  const bool speaks = comm.rank() == Rank{0};
  if (!speaks && mine == first) return;
  for (const std::string& note : notes)
    spdlog::warn("{}{}", speaks ? std::string() : fmt::format("rank {}: ", to_int(comm.rank())), note);
}

std::vector<at::Tensor> buffers(RunContext& context, std::int64_t count, Purpose purpose, const char* name,
                                std::int64_t n, DType dtype, Place place) {
  std::vector<at::Tensor> all;
  for (std::int64_t b = 0; b < count; ++b)
    all.push_back(context.ledger.zeros(purpose, name, {n}, dtype, place));
  return all;
}

}  // namespace

Infinity::Infinity(RunContext& context, const Options& options)
    : context_(context),
      options_(options),
      delivery_(options.params_at != ParamsAt::device   ? Delivery::by_gathers
                : options.update == UpdateKind::delayed ? Delivery::once_a_step
                                                        : Delivery::from_window),
      layout_(context.shape.workload.model, context.shape.mesh.world()),
      passes_(context, layout_),
      sums_(passes_.sums()),
      units_(context, layout_, options, kept_by(options)),
      scalars_(units_.scalars(),
               context.ledger.zeros(Purpose::workspace, "scalars_host", {8}, DType::f64, Place::pinned)),
      clock_{.delayed = options.update == UpdateKind::delayed,
             .warm_steps = options.warm_steps,
             .first_step = context.first_step},
      step_(context.first_step),
      pieces_(cut_pieces(layout_, context.comm.rank(), options.piece, options.resident)) {
  const WindowPlan plan(pieces_, context.shape, options);
  take_window(plan);
  take_gradients(plan);
  open_file(plan);
  params_ = make_home(plan);
  states_ = std::make_unique<StatesOnDisk>(window_, *file_, *params_);
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    at::Tensor master = states_->first_master(i);
    init_slice(layout_, pieces_[i].unit, Segment::sharded, pieces_[i].range, context.shape.workload.seed,
               master);
    params_->keep_first_values(i, master);
    states_->write_first(i);
  }
  states_->wait_first();
  optimizer_ =
      std::make_unique<HostOptimizer>(pieces_, hyper_of(context.shape.workload.optim),
                                      adam_threads(options, context.shape.mesh.world()), *states_, *params_);
}

// [anchor: states-on-the-disk]
// A file without a name, an extent a piece: master, then momentum, then variance. In memory: the
// window.
void Infinity::open_file(const WindowPlan& plan) {
  file_ = std::make_unique<StateFile>(
      posix_file_ops(),
      BlockFile::Options{
          .path = Path(options_.disk) / fmt::format("states of rank {}", to_int(context_.comm.rank())),
          .block = Bytes(options_.block),
          .depth = static_cast<int>(options_.depth),
          .engine = options_.engine,
          .mbps = options_.disk_mbps,
          .wrap = options_.wrap},
      plan.extents, context_.record, clock_);
  for (const DiskBytes& bytes : disk_bytes(plan, context_.shape.workload.precision, options_))
    file_->keep_reserved(context_.ledger.reserve(bytes.purpose, bytes.name, bytes.bytes, Place::disk));
  say(file_->uncounted().notes(), context_.comm);
}

void Infinity::take_window(const WindowPlan& plan) {
  std::int64_t begin = 0;
  for (const Piece& p : pieces_) {
    window_.sizes.push_back(p.range.size()), window_.begins.push_back(begin), window_.units.push_back(p.unit);
    begin += p.range.size();
  }
  window_.states = buffers(context_, plan.buffers, Purpose::workspace, "window of states",
                           extent_of(plan.largest).value() / 4, DType::f32, plan.states);
}

void Infinity::take_gradients(const WindowPlan& plan) {
  const DType dtype = context_.shape.workload.precision.grad_dtype;
  if (keeps_gradients(options_)) {
    grads_window_ = buffers(context_, plan.buffers, Purpose::gradients, "window of gradients", plan.largest,
                            dtype, Place::pinned);
    return;
  }
  const int turns = options_.update == UpdateKind::delayed ? 2 : 1;
  const at::Tensor grads =
      context_.ledger.zeros(Purpose::gradients, "grads_host", {plan.elements * turns}, dtype, Place::pinned);
  for (const int turn : {0, 1})
    for (std::size_t i = 0; i < pieces_.size(); ++i)
      grads_host_[turn].push_back(
          grads.narrow(0, turn % turns * plan.elements + window_.begins[i], window_.sizes[i]));
}

std::unique_ptr<ParamHome> Infinity::make_home(const WindowPlan& plan) {
  const auto take = [&](std::int64_t count, const char* name, std::int64_t n, Place place) {
    return buffers(context_, count, Purpose::parameters, name, n, plan.dtype, place);
  };
  if (delivery_ == Delivery::from_window) {
    std::vector<at::Tensor> on_device;
    for (const Piece& p : pieces_) on_device.push_back(units_.params_of(p));
    return std::make_unique<ParamsInWindow>(
        window_, take(plan.to_device ? plan.buffers : 0, "window of parameters", plan.largest, Place::pinned),
        std::move(on_device));
  }
  if (options_.params_at != ParamsAt::disk)
    return std::make_unique<ParamsOnHost>(
        window_, take(params_on_host(options_), "params_host", plan.elements, Place::pinned));
  const std::int64_t n = plan.params_extent(plan.largest).value() / size_of(plan.dtype);
  return std::make_unique<ParamsOnDisk>(
      ParamsOnDisk::Setting{.file = *file_,
                            .window = window_,
                            .first_extent = pieces_.size(),
                            .versions = versions_of(options_),
                            .out = take(plan.buffers, "parameters to the disk", n, Place::host),
                            .in = take(plan.buffers, "parameters from the disk", n, Place::pinned)});
}

}  // namespace sc
