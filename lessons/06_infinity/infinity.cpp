#include "infinity.h"

#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>

#include <sstream>

#include "common/comm/gather_text.h"
#include "streamed_update.h"
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

// [anchor: states-on-the-disk]
// A file without a name, an extent a piece: master, momentum and variance behind each other. In memory: the window.
std::unique_ptr<PieceUpdates> on_disk(const InfinityOptions& options, RunContext& context,
                                      const ParamLayout& layout, std::vector<Piece> pieces) {
  const PrecisionConfig& precision = context.shape.workload.precision;
  const WindowPlan plan(pieces, context.shape, options);
  const std::int64_t slice = plan.elements;
  const auto flat = [&](Purpose purpose, const char* name, std::int64_t n, DType dtype, Place place) {
    return context.ledger.zeros(purpose, name, {n}, dtype, place);
  };
  const auto blocks_of_params = [&](const char* name, Place place) {
    std::vector<at::Tensor> buffers;
    const std::int64_t n = plan.params_extent(plan.largest).value() / size_of(plan.dtype);
    for (std::int64_t b = 0; b < plan.buffers; ++b)
      buffers.push_back(flat(Purpose::parameters, name, n, plan.dtype, place));
    return buffers;
  };
  StateWindow window;
  for (std::int64_t b = 0; b < plan.buffers; ++b) {
    window.states.push_back(flat(Purpose::workspace, "window of states",
                                 StreamedUpdate::extent_of(plan.largest).value() / 4, DType::f32,
                                 plan.states));
    if (keeps_gradients(options))
      window.grads.push_back(
          flat(Purpose::gradients, "window of gradients", plan.largest, precision.grad_dtype, Place::pinned));
    if (plan.to_device)
      window.params.push_back(
          flat(Purpose::parameters, "window of parameters", plan.largest, precision.dtype, Place::pinned));
  }
  const int turns = options.update == UpdateKind::delayed ? 2 : 1;
  at::Tensor grads;
  if (!keeps_gradients(options))
    grads = flat(Purpose::gradients, "grads_host", slice * turns, precision.grad_dtype, Place::pinned);
  std::vector<at::Tensor> params;  // on the host
  for (std::int64_t version = 0; version < params_on_host(options); ++version)
    params.push_back(flat(Purpose::parameters, "params_host", slice, precision.dtype, Place::pinned));
  std::vector<std::int64_t> sizes;
  std::int64_t begin = 0;
  for (Piece& p : pieces) {
    for (int turn = 0; grads.defined() && turn < turns; ++turn)
      p.grads[turn] = grads.narrow(0, turn * slice + begin, p.range.size());
    if (!params.empty() && options.params_at == ParamsAt::device)
      p.params = params.front().narrow(0, begin, p.range.size());
    sizes.push_back(p.range.size());
    begin += p.range.size();
  }
  auto file = std::make_unique<StateFile>(
      posix_file_ops(),
      BlockFile::Options{
          .path = Path(options.disk) / fmt::format("states of rank {}", to_int(context.comm.rank())),
          .block = Bytes(options.block),
          .depth = static_cast<int>(options.depth),
          .engine = options.engine,
          .mbps = options.disk_mbps,
          .wrap = options.wrap},
      plan.extents, context.record);
  for (const DiskBytes& bytes : disk_bytes(plan, precision, options))
    file->reserved.push_back(context.ledger.reserve(bytes.purpose, bytes.name, bytes.bytes, Place::disk));
  say(file->blocks.notes(), context.comm);
  std::unique_ptr<ParamHome> home;
  if (options.params_at == ParamsAt::host) home = std::make_unique<ParamsInMemory>(std::move(params), sizes);
  if (options.params_at == ParamsAt::disk)
    home = std::make_unique<ParamsOnDisk>(
        ParamsOnDisk::Setting{.file = file->blocks,
                              .transfers = file->transfers,
                              .first_extent = pieces.size(),
                              .versions = versions_of(options),
                              .first_step = context.first_step,
                              .sizes = sizes,
                              .out = blocks_of_params("parameters to the disk", Place::host),
                              .in = blocks_of_params("parameters from the disk", Place::pinned)});
  const std::vector<Piece> known = pieces;
  return std::make_unique<StreamedUpdate>(
      std::move(pieces), std::move(window), std::move(file), std::move(home),
      StreamedUpdate::Setting{.context = context,
                              .hyper = hyper_of(context.shape.workload.optim),
                              .threads = Offload::threads_of(options, context.shape.world),
                              .first_values = [&](std::size_t i, at::Tensor& master) {
                                init_slice(layout, known[i].unit, Segment::sharded, known[i].range,
                                           context.shape.workload.seed, master);
                              }});
}

}  // namespace

Infinity::Infinity(RunContext& context, const Options& options)
    : Offload(context, options, kept_by(options), [&](const ParamLayout& layout, std::vector<Piece> pieces) {
        return on_disk(options, context, layout, std::move(pieces));
      }) {}

std::optional<Timetable> Infinity::timetable(Communicator& comm) {
  std::vector<Timetable::Share> shares = time_of_a_step();
  std::string mine;
  for (const Timetable::Share& share : shares) mine += fmt::format("{} ", share.seconds.front());
  const std::vector<std::string> all = gather_strings(comm, mine);
  if (comm.rank() != Rank{0} || shares.empty()) return {};
  for (Timetable::Share& share : shares) share.seconds.clear();
  for (const std::string& of_rank : all) {
    std::istringstream in(of_rank);
    for (Timetable::Share& share : shares) in >> share.seconds.emplace_back();
  }
  return Timetable{.shares = std::move(shares)};
}

}  // namespace sc
