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

}  // namespace

Infinity::Infinity(RunContext& context, const Options& options)
    : context_(context),
      options_(options),
      delivery_(options.params_at != ParamsAt::device   ? Delivery::by_gathers
                : options.update == UpdateKind::delayed ? Delivery::once_a_step
                                                        : Delivery::from_window),
      buffers_(context.ledger, Plans(options).memory_plan(context.shape)),
      layout_(context.shape.workload.model, context.shape.mesh.world()),
      passes_(context, layout_),
      sums_(passes_.sums()),
      units_(context, buffers_, layout_, options),
      scalars_(units_.scalars(), buffers_.zeros("scalars_host")),
      clock_{.delayed = options.update == UpdateKind::delayed,
             .warm_steps = options.warm_steps,
             .first_step = context.first_step},
      step_(context.first_step),
      pieces_(cut_pieces(layout_, context.comm.rank(), options.piece, options.resident)) {
  const WindowPlan plan(context.shape, options);
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
  std::vector<Bytes> extents;
  for (const Piece& p : pieces_) extents.push_back(extent_of(p.range.size()));
  for (std::int64_t version = 0; version < params_on_disk(options_); ++version)
    for (const Piece& p : pieces_) extents.push_back(plan.params_extent(p.range.size()));
  file_ = std::make_unique<StateFile>(
      posix_file_ops(),
      BlockFile::Options{
          .path = Path(options_.disk) / fmt::format("states of rank {}", to_int(context_.comm.rank())),
          .block = Bytes(options_.block),
          .depth = static_cast<int>(options_.depth),
          .engine = options_.engine,
          .mbps = options_.disk_mbps,
          .wrap = options_.wrap},
      extents, context_.record, clock_);
  file_->keep_reserved(buffers_.reserve_disk());
  say(file_->uncounted().notes(), context_.comm);
}

void Infinity::take_window(const WindowPlan& plan) {
  std::int64_t begin = 0;
  for (const Piece& p : pieces_) {
    window_.sizes.push_back(p.range.size()), window_.begins.push_back(begin), window_.units.push_back(p.unit);
    begin += p.range.size();
  }
  window_.states = buffers_.zeros("window of states").view(at::kFloat).view({plan.buffers, -1}).unbind();
}

void Infinity::take_gradients(const WindowPlan& plan) {
  if (keeps_gradients(options_)) {
    grads_window_ = buffers_.zeros("window of gradients").view({plan.buffers, -1}).unbind();
    return;
  }
  const int turns = options_.update == UpdateKind::delayed ? 2 : 1;
  const at::Tensor grads = buffers_.zeros("grads_host").view({turns, -1});
  for (const int turn : {0, 1})
    for (std::size_t i = 0; i < pieces_.size(); ++i)
      grads_host_[turn].push_back(
          grads.select(0, turn % turns).narrow(0, window_.begins[i], window_.sizes[i]));
}

std::unique_ptr<ParamHome> Infinity::make_home(const WindowPlan& plan) {
  const auto in_pieces = [&](const char* name) {
    const at::Tensor all = buffers_.zeros(name);
    if (!all.defined()) return std::vector<at::Tensor>();
    return all.view(to_aten(plan.dtype)).view({plan.buffers, -1}).unbind();
  };
  if (delivery_ == Delivery::from_window) {
    std::vector<at::Tensor> on_device;
    for (const Piece& p : pieces_) on_device.push_back(units_.params_of(p));
    return std::make_unique<ParamsInWindow>(window_, in_pieces("window of parameters"), std::move(on_device));
  }
  if (options_.params_at != ParamsAt::disk)
    return std::make_unique<ParamsOnHost>(
        window_, buffers_.zeros("params_host").view({params_on_host(options_), -1}).unbind());
  return std::make_unique<ParamsOnDisk>(ParamsOnDisk::Setting{.file = *file_,
                                                              .window = window_,
                                                              .first_extent = pieces_.size(),
                                                              .versions = versions_of(options_),
                                                              .out = in_pieces("parameters to the disk"),
                                                              .in = in_pieces("parameters from the disk")});
}

}  // namespace sc
