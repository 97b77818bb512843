#include "common/strategy/weights.h"

#include <ATen/ops/zeros.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "common/model/hf_weights.h"
#include "common/storage/atomic_dir.h"
#include "common/strategy/any_strategy.h"

namespace sc::detail {
namespace {

/// What --save and --init are about.
struct Weights {
  explicit Weights(AnyStrategy& strategy) {
    for (StateSlice& slice : strategy.state()) {
      if (slice.purpose == Purpose::master) exact = Purpose::master;
      if (slice.purpose == Purpose::parameters || slice.purpose == Purpose::master)
        slices.push_back(std::move(slice));
    }
  }
  std::vector<StateSlice> slices;
  Purpose exact =
      Purpose::parameters;  // which of them hold the exact values: the fp32 master where there is one
};

UnitTensors zeros_of(const ParamLayout& layout, int unit) {
  const UnitLayout& u = layout.unit(unit);
  return {at::zeros({u.sharded_size}, at::kFloat),
          u.whole_size > 0 ? at::zeros({u.whole_size}, at::kFloat) : at::Tensor()};
}

at::Tensor part(const UnitTensors& whole, const StateSlice& slice) {
  return whole.segment(slice.segment).narrow(0, slice.range.begin, slice.range.size());
}

// The unit's parameters on every rank. A segment that is held in slices is summed: exact, because slices do
// not overlap and the rest is zero. One that every rank holds in full (a whole segment, replicas) is there
// already.
UnitTensors whole_unit(const Weights& state, const ParamLayout& layout, int unit, Communicator& comm) {
  UnitTensors whole = zeros_of(layout, unit);
  for (const Segment segment : {Segment::sharded, Segment::whole}) {
    std::int64_t held = 0;
    for (const StateSlice& slice : state.slices) {
      if (slice.unit != unit || slice.segment != segment || slice.purpose != state.exact) continue;
      part(whole, slice).copy_(slice.values);
      held += slice.range.size();
    }
    if (held == layout.unit(unit).size(segment)) continue;
    at::Tensor sum = whole.segment(segment);
    comm.all_reduce(sum).wait();
  }
  return whole;
}

}  // namespace

void load_weights(AnyStrategy& strategy, const ParamLayout& layout, const std::string& path) {
  const HfWeights file(path, layout.config());
  Weights state(strategy);
  for (int unit = 0; unit < layout.num_units(); ++unit) {
    const UnitTensors whole = zeros_of(layout, unit);
    file.load_unit(layout, unit, whole);
    for (StateSlice& slice : state.slices) {
      if (slice.unit == unit) slice.values.copy_(part(whole, slice));
    }
  }
}

void for_each_whole_unit(AnyStrategy& strategy, const ParamLayout& layout, Communicator& comm,
                         const std::function<void(int unit, const UnitTensors& values)>& take) {
  Weights state(strategy);
  for (int unit = 0; unit < layout.num_units(); ++unit) take(unit, whole_unit(state, layout, unit, comm));
}

void check_save_path(FileOps& ops, const Path& path) {
  const PathKind kind = ops.kind(path);
  if (kind != PathKind::absent && kind != PathKind::file) {
    throw InputError(ExitCode::cannot_write, path.string(),
                     kind == PathKind::directory ? "is a directory" : "is not a file",
                     "--save takes the path of the file to write");
  }
  const Path directory = parent_of(path);
  make_dirs(ops, directory);
  if (::access(directory.c_str(), W_OK) != 0)
    throw file_error(FileIntent::write, directory, "write in this directory", errno);
}

void save_weights(AnyStrategy& strategy, const ParamLayout& layout, Communicator& comm,
                  const std::string& path) {
  Weights state(strategy);
  if (comm.rank() != Rank{0}) {
    for (int unit = 0; unit < layout.num_units(); ++unit) whole_unit(state, layout, unit, comm);
    return;
  }
  const std::unique_ptr<FileOps> ops = posix_file_ops();
  atomic_write_file(*ops, path, [&](File& file) {
    export_hf_weights(file, layout, DType::f32,
                      [&](int unit) { return whole_unit(state, layout, unit, comm); });
  });
}

}  // namespace sc::detail
