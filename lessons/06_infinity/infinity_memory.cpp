// The host's buffers of lesson 06 and its file on the disk, taken as infinity_plan.cpp has declared them.
#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>

#include "common/comm/gather_text.h"
#include "infinity.h"
#include "window_plan.h"

namespace sc {
namespace {

// Says what the machine refused of its disk. Rank 0 speaks for all ranks whose notes are the same as its own.
void say(const std::vector<std::string>& notes, Communicator& comm) {
  const std::string mine = fmt::format("{}", fmt::join(notes, "\n")), first = broadcast_string(comm, mine);
  const bool speaks = comm.rank() == Rank{0};
  if (!speaks && mine == first) return;
  for (const std::string& note : notes)
    spdlog::warn("{}{}", speaks ? std::string() : fmt::format("rank {}: ", to_int(comm.rank())), note);
}

}  // namespace

Infinity::Infinity(RunContext& context, const Options& options)
    : HostStrategy(context, options, Plans(options).memory_plan(context.shape)),
      options_(options),
      delivery_(delivery_of(options)),
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
// The file has no name, and an extent for each piece: master, then momentum, then variance. With
// params_at=disk the extents of parameters come after those of all states, version by version.
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

}  // namespace sc
