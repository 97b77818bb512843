#include "common/strategy/weights.h"

#include <ATen/ops/zeros.h>
#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "common/comm/gather_text.h"
#include "common/model/hf_weights.h"
#include "common/storage/atomic_dir.h"
#include "common/strategy/holders.h"
#include "common/strategy/strategy.h"

namespace sc::detail {
namespace {

/// What --save and --init are about.
struct Weights {
  explicit Weights(Strategy& strategy) {
    for (StateSlice& slice : strategy.state()) {
      if (slice.version != 0) continue;
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

bool is_of(const StateSlice& slice, int unit, Segment segment) {
  return slice.unit == unit && slice.segment == segment;
}

// The unit's parameters on every rank. What not all ranks have is summed: exact, because one rank provides
// each element, and the others have zeros there.
UnitTensors whole_unit(const Weights& state, const Holders& holders, const ParamLayout& layout, int unit,
                       Communicator& comm) {
  UnitTensors whole = zeros_of(layout, unit);
  for (const Segment segment : {Segment::sharded, Segment::whole}) {
    const Range all{0, layout.unit(unit).size(segment)};
    const StateKey key{state.exact, 0, unit, segment};
    const bool here = holders.on_all(key, all.size());
    const std::vector<Range> provided = here ? std::vector{all} : holders.lowest(key, all);
    for (const StateSlice& slice : state.slices) {
      if (!is_of(slice, unit, segment) || slice.purpose != state.exact) continue;
      for (const Range& part : provided) {
        for_each_piece(shared(part, slice.range), [&](Range piece) {
          at::Tensor into = whole.segment(segment).narrow(0, piece.begin, piece.size());
          slice.read(piece, into);
        });
      }
    }
    if (here) continue;
    at::Tensor sum = whole.segment(segment);
    comm.all_reduce(sum, {OpPurpose::parameters, unit}).wait();
  }
  return whole;
}

}  // namespace

std::vector<std::string> load_weights(Strategy& strategy, const ParamLayout& layout,
                                      const std::string& path) {
  const HfWeights file(path, layout.config());
  const Weights state(strategy);
  for (int unit = 0; unit < layout.num_units(); ++unit) {
    const UnitTensors whole = zeros_of(layout, unit);
    file.load_unit(layout, unit, whole);
    for (const StateSlice& slice : state.slices) {
      if (slice.unit != unit) continue;
      for_each_piece(slice.range, [&](Range piece) {
        slice.write(piece, whole.segment(slice.segment).narrow(0, piece.begin, piece.size()));
      });
    }
  }
  return file.notes();
}

void for_each_whole_unit(Strategy& strategy, const ParamLayout& layout, Communicator& comm,
                         const std::function<void(int unit, const UnitTensors& values)>& take) {
  const Weights state(strategy);
  const Holders holders(state.slices, comm);
  for (int unit = 0; unit < layout.num_units(); ++unit)
    take(unit, whole_unit(state, holders, layout, unit, comm));
}

void check_save_path(FileOps& ops, const Path& path) {
  require_replaceable(ops, path);
  const Path directory = parent_of(path);
  make_dirs(ops, directory);
  if (::access(directory.c_str(), W_OK) != 0)
    throw file_error(FileIntent::write, directory, "write in this directory", errno);
}

void save_weights(Strategy& strategy, const ParamLayout& layout, Communicator& comm,
                  const std::string& path) {
  const Weights state(strategy);
  const Holders holders(state.slices, comm);
  if (comm.rank() != Rank{0}) {
    for (int unit = 0; unit < layout.num_units(); ++unit) whole_unit(state, holders, layout, unit, comm);
    return;
  }
  const std::unique_ptr<FileOps> ops = posix_file_ops();
  atomic_write_file(*ops, path, [&](File& file) {
    export_hf_weights(file, layout, DType::f32,
                      [&](int unit) { return whole_unit(state, holders, layout, unit, comm); });
  });
}

}  // namespace sc::detail
