#include "infinity_plan.h"

#include <spdlog/fmt/fmt.h>

#include "common/base/text.h"
#include "common/strategy/state_plan.h"
#include "window_plan.h"

namespace sc {

FieldTable<InfinityOptions> InfinityPlans::table() const {
  FieldTable<Options> table;
  add_update_fields(table, /*early=*/false);
  table.add({"piece", "elements", "what is read, updated and written at a time"}, integer(64),
            &Options::piece);
  table.add({"buffers", "pieces", "whose states are in memory at a time"}, integer(1, 1024),
            &Options::buffers);
  table.add({"grads_at", "", "where gradients wait for the norm: on the device, or in pinned host memory"},
            choice<GradsAt>({{"device", GradsAt::device}, {"host", GradsAt::host}}), &Options::grads_at);
  table.add(
      {"params_at", "",
       "where this rank's slice of the parameters is: on the device, in pinned host memory, or on the disk"},
      choice<ParamsAt>({{"device", ParamsAt::device}, {"host", ParamsAt::host}, {"disk", ParamsAt::disk}}),
      &Options::params_at);
  table.add({"engine", "",
             "how the disk is used: by the kernel's ring, or by threads; the other one if it is refused"},
            choice<IoEngine>({{"io_uring", IoEngine::io_uring}, {"threads", IoEngine::threads}}),
            &Options::engine);
  table.add({"block", "bytes", "of one request to the disk; a multiple of 4096"}, integer(4096),
            &Options::block);
  table.add({"depth", "requests", "in flight to the disk at a time"}, integer(1, 1024), &Options::depth);
  table.add({"disk", "", "a directory on the disk; nothing is left there"}, text(), &Options::disk);
  table.add({"disk_mbps", "MB/s", "the disk is no faster, reads and writes together; 0: as fast as it is"},
            real({.low = 0}), &Options::disk_mbps);
  table.add({"prefetch", "units", "how many units ahead of the one that computes are on their way"},
            integer(0, 16), &Options::prefetch);
  add_host_fields(table);
  return table;
}

namespace {

void refuse(const RunShape& shape, const InfinityOptions& options) {
  refuse_contradictions(shape, options);
  if (options.update == UpdateKind::delayed && keeps_gradients(options))
    refuse_setting("update=delayed",
                   "the next gradient would overwrite the one on the device that the update still reads",
                   "grads_at=host, or update=exact");
  if (options.params_at != ParamsAt::device && options.parameters == ParametersOn::whole)
    refuse_setting(options.params_at == ParamsAt::host ? "params_at=host" : "params_at=disk",
                   "with parameters=whole every rank has all of them on its device",
                   "parameters=sharded, or params_at=device");
  if (options.resident > 0 && options.params_at != ParamsAt::device)
    refuse_setting("resident", "what the device updates has to be on the device",
                   "params_at=device, or resident=0");
  if (options.block % kBlockAlign != 0)
    refuse_setting("block", fmt::format("{} is no multiple of {}", options.block, kBlockAlign),
                   fmt::format("block={}", round_up(options.block, kBlockAlign)));
}

}  // namespace

MemoryPlan InfinityPlans::memory_plan(const RunShape& shape) const {
  refuse(shape, options_);
  MemoryPlan plan;
  plan_device(shape, options_, kept_by(options_), plan);
  const PrecisionConfig& precision = shape.workload.precision;
  const WindowPlan window(shape, options_);
  const Formula slice = slice_on_host(shape, options_), buffers("buffers", window.buffers),
                piece("piece", window.largest);
  const auto slices = [&](std::int64_t n) { return n > 1 ? n * slice : slice; };
  const auto in_blocks = [](const Formula& bytes) {
    return bytes + Formula("rounding", round_up(bytes.value(), kBlockAlign) - bytes.value());
  };
  plan.add(
      {Purpose::workspace, "window of states", buffers * in_blocks(12 * piece), DType::u8, window.states});
  if (keeps_gradients(options_)) {
    plan.add({Purpose::gradients, "window of gradients", times(buffers, piece), precision.grad_dtype,
              Place::pinned});
  } else {
    plan.add({Purpose::gradients, "grads_host", slices(options_.update == UpdateKind::delayed ? 2 : 1),
              precision.grad_dtype, Place::pinned});
  }
  if (window.to_device)
    plan.add(
        {Purpose::parameters, "window of parameters", times(buffers, piece), precision.dtype, Place::pinned});
  if (const std::int64_t n = params_on_host(options_); n > 0)
    plan.add({Purpose::parameters, "params_host", slices(n), precision.dtype, Place::pinned});
  const std::int64_t on_disk = params_on_disk(options_);
  if (on_disk > 0) {
    const Formula bytes = buffers * in_blocks(size_of(precision.dtype) * piece);
    plan.add({Purpose::parameters, "parameters to the disk", bytes, DType::u8, Place::host});
    plan.add({Purpose::parameters, "parameters from the disk", bytes, DType::u8, Place::pinned});
  }
  plan.add({Purpose::master, "master on disk", slice, DType::f32, Place::disk});
  plan.add({Purpose::momentum, "momentum on disk", slice, DType::f32, Place::disk});
  plan.add({Purpose::variance, "variance on disk", slice, DType::f32, Place::disk});
  if (on_disk > 0)
    plan.add({Purpose::parameters, "parameters on disk", slices(on_disk), precision.dtype, Place::disk});
  const std::int64_t whole_pieces =
      (3 * size_of(DType::f32) + on_disk * size_of(precision.dtype)) * slice.value();
  plan.add({Purpose::workspace, "up to whole blocks", Formula("rounding", window.file.value() - whole_pieces),
            DType::u8, Place::disk});
  return plan;
}

Contents InfinityPlans::contents(const RunShape& shape) const {
  Contents contents = contents_of_device(shape, options_);
  contents.states = Extent::free;
  if (options_.params_at != ParamsAt::device) contents.parameters = Extent::free;
  return contents;
}

// The operations of an optimizer on the host, and each piece's states once each way over the disk. Parameters
// that do not stay on the device come up with each gather; with params_at=disk each gather reads them, and a
// step writes them once.
CommPlan InfinityPlans::comm_plan(const RunShape& shape) const {
  CommPlan plan = plan_operations(shape, options_);
  const ParamLayout layout = layout_of(shape);
  const bool by_gathers = options_.params_at != ParamsAt::device;
  const std::vector<Piece> pieces = cut_pieces(layout, shape.rank, options_.piece, options_.resident);
  const WindowPlan window(shape, options_);
  for (const Piece& piece : pieces) {
    const What params{OpPurpose::parameters, piece.unit}, states{OpPurpose::states, piece.unit};
    const std::int64_t times =
        by_gathers ? gathers_of(layout, options_, micro_batches_of(shape), piece.unit) : 1;
    plan.add(
        {CommKind::to_device, shape.workload.precision.dtype, Elements(piece.range.size()), WorldSize{1}},
        params, times - 1);
    if (params_on_disk(options_) > 0) {
      const Elements extent(window.params_extent(piece.range.size()).value() / 4);
      plan.add({CommKind::disk_read, DType::f32, extent, WorldSize{1}}, params, times);
      plan.add({CommKind::disk_write, DType::f32, extent, WorldSize{1}}, params);
    }
    const Elements extent(extent_of(piece.range.size()).value() / 4);
    plan.add({CommKind::disk_read, DType::f32, extent, WorldSize{1}}, states);
    plan.add({CommKind::disk_write, DType::f32, extent, WorldSize{1}}, states);
  }
  return plan;
}

Facts InfinityPlans::facts(const RunShape& shape) const {
  Facts facts = facts_of_host(shape, options_);
  // No update comes before the first step, which therefore moves less than the plan says.
  facts.planned_from = 1;
  for (const char* setting : {"grads_at=host", "parameters=sharded grads_at=host",
                              "parameters=sharded grads_at=host params_at=host",
                              "parameters=sharded grads_at=host params_at=disk prefetch=0"})
    facts.smaller.emplace_back(setting);
  return facts;
}

std::string InfinityPlans::predict(const RunShape& shape) const {
  const ParamLayout layout = layout_of(shape);
  const std::vector<Piece> pieces = cut_pieces(layout, shape.rank, options_.piece, options_.resident);
  const WindowPlan window(shape, options_);
  const CommPlan operations = comm_plan(shape);
  const auto moved = [&](CommKind kind) {
    Bytes sum;
    for (const auto& [op, count] : operations.count)
      if (op.kind == kind) sum += count * bytes_of(op.elements, op.dtype);
    return sum;
  };
  const Bytes read = moved(CommKind::disk_read), written = moved(CommKind::disk_write);
  std::string text =
      updates_in_words(shape, options_) +
      fmt::format("the disk: {} pieces, a window of {}; {} read and {} written by a rank in a step",
                  pieces.size(), window.buffers, human_bytes(read), human_bytes(written));
  if (options_.disk_mbps > 0)
    text += fmt::format(": {:.2f} s at {:g} MB/s",
                        1e-6 * static_cast<double>((read + written).value()) / options_.disk_mbps,
                        options_.disk_mbps);
  return text + "\n";
}

}  // namespace sc
