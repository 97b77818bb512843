#include "common/strategy/weights.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "common/comm/gather_text.h"
#include "common/model/cut_places.h"
#include "common/model/hf_names.h"
#include "common/model/hf_weights.h"
#include "common/storage/atomic_dir.h"
#include "common/strategy/state_placement.h"
#include "common/strategy/strategy.h"

namespace sc::detail {
namespace {

/// The slices that --save and --init work on.
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
  // The purpose with the exact values: the fp32 master if there is one.
  Purpose exact = Purpose::parameters;
};

UnitTensors zeros_of(const ParamLayout& layout, int unit) {
  const UnitLayout& u = layout.unit(unit);
  return {at::zeros({u.sharded_size}, at::kFloat),
          u.whole_size > 0 ? at::zeros({u.whole_size}, at::kFloat) : at::Tensor()};
}

/// Maps a strategy's vectors to those of the whole model: places are the same unless tensor ranks have parts
/// of matrices.
struct Cut {
  explicit Cut(const ParamLayout& layout) : here(layout), whole(layout.whole()) {}

  [[nodiscard]] bool is_cut() const { return here.cut().ranks > 1; }
  /// Calls f(elements of `piece`, the same in a segment of the whole unit) for each contiguous part.
  template <class F>
  void for_each_piece_of(const StateSlice& slice, Range piece, const UnitTensors& of_whole,
                         const F& f) const {
    for_each_place(here, whole, slice.unit, slice.segment, piece,
                   [&](Range mine, Segment segment, std::int64_t at) {
                     f(Range{mine.begin - piece.begin, mine.end - piece.begin},
                       of_whole.segment(segment).narrow(0, at, mine.size()));
                   });
  }

  const ParamLayout& here;
  ParamLayout whole;
};

void read_piece(const StateSlice& slice, Range piece, const Cut& cut, const UnitTensors& whole) {
  if (!cut.is_cut()) {
    at::Tensor into = whole.segment(slice.segment).narrow(0, piece.begin, piece.size());
    return slice.read(piece, into);
  }
  at::Tensor values = at::empty({piece.size()}, at::kFloat);
  slice.read(piece, values);
  cut.for_each_piece_of(slice, piece, whole, [&](Range here, const at::Tensor& into) {
    into.copy_(values.narrow(0, here.begin, here.size()));
  });
}

void write_piece(const StateSlice& slice, Range piece, const Cut& cut, const UnitTensors& whole) {
  if (!cut.is_cut())
    return slice.write(piece, whole.segment(slice.segment).narrow(0, piece.begin, piece.size()));
  at::Tensor values = at::zeros({piece.size()}, at::kFloat);  // padding becomes zero
  cut.for_each_piece_of(slice, piece, whole, [&](Range here, const at::Tensor& from) {
    values.narrow(0, here.begin, here.size()).copy_(from);
  });
  slice.write(piece, values);
}

// The unit's parameters on every rank. What not all ranks have is summed, which is exact: one rank provides
// each element, and the others contribute zeros.
UnitTensors whole_unit(const Weights& state, const StatePlacement& placement, const Cut& cut, int unit,
                       Communicator& comm) {
  UnitTensors whole = zeros_of(cut.whole, unit);
  for (const StateSlice& slice : state.slices) {
    if (slice.unit != unit || slice.purpose != state.exact) continue;
    const Range all{0, cut.here.unit(unit).size(slice.segment)};
    const StateKey key = key_of(slice, cut.here);
    const bool here = !cut.is_cut() && placement.on_all(key, all.size());
    for (const Range& part : here ? std::vector{all} : placement.lowest(key, all))
      for_each_piece(shared(part, slice.range), [&](Range piece) { read_piece(slice, piece, cut, whole); });
  }
  for (const Segment segment : {Segment::sharded, Segment::whole}) {
    const StateKey key{state.exact, 0, unit, segment};
    const Range all{0, cut.whole.unit(unit).size(segment)};
    if (!cut.is_cut() && placement.on_all(key, all.size())) continue;
    if (!whole.segment(segment).defined()) continue;
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
  const Cut cut(layout);
  for (int unit = 0; unit < layout.num_units(); ++unit) {
    const UnitTensors whole = zeros_of(cut.whole, unit);
    file.load_unit(cut.whole, unit, whole);
    for (const StateSlice& slice : state.slices) {
      if (slice.unit != unit) continue;
      for_each_piece(slice.range, [&](Range piece) { write_piece(slice, piece, cut, whole); });
    }
  }
  return file.notes();
}

void for_each_whole_unit(Strategy& strategy, const ParamLayout& layout, Communicator& comm,
                         const std::function<void(int unit, const UnitTensors& values)>& take) {
  const Weights state(strategy);
  const StatePlacement placement(state.slices, layout, comm);
  const Cut cut(layout);
  for (int unit = 0; unit < layout.num_units(); ++unit)
    take(unit, whole_unit(state, placement, cut, unit, comm));
}

void check_save_path(FileOps& ops, const Path& path, const GptConfig& config) {
  require_replaceable(ops, path);
  const Path directory = parent_of(path);
  make_dirs(ops, directory);
  if (::access(directory.c_str(), W_OK) != 0)
    throw file_error(FileIntent::write, directory, "write in this directory", errno);
  if (is_hf_folder(path)) check_hf_config(ops, path, {}, config);
}

void save_weights(Strategy& strategy, const ParamLayout& layout, Communicator& comm, FileOps& ops,
                  const std::string& path, const std::function<void()>& meet) {
  const Weights state(strategy);
  const StatePlacement placement(state.slices, layout, comm);
  const Cut cut(layout);
  const auto next = [&](int unit) {
    meet();
    return whole_unit(state, placement, cut, unit, comm);
  };
  if (comm.rank() == Rank{0}) {
    atomic_write_file(ops, path, [&](File& file) { export_hf_weights(file, cut.whole, DType::f32, next); });
    write_hf_config(ops, path, layout.config());
  } else {
    for (int unit = 0; unit < layout.num_units(); ++unit) next(unit);
  }
  meet();
}

}  // namespace sc::detail
