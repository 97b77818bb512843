#include "common/strategy/saved_state.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <optional>
#include <string>

#include "common/base/check.h"
#include "common/base/finite.h"
#include "common/comm/op_check.h"
#include "common/memory/ledger.h"
#include "common/strategy/state_placement.h"

namespace sc::detail {
namespace {

bool is_saved(const StateSlice& slice, bool has_master) {
  // With a master, the newest parameters are only its rounded copy.
  if (slice.purpose == Purpose::parameters) return !has_master || slice.version != 0;
  return slice.purpose == Purpose::master || slice.purpose == Purpose::momentum ||
         slice.purpose == Purpose::variance || slice.pending;
}

std::span<std::byte> bytes_of(const at::Tensor& t) {
  return {static_cast<std::byte*>(t.mutable_data_ptr()), static_cast<std::size_t>(t.nbytes())};
}

/// Calls f(tensor, Range in it, Range of the segment) for each named tensor that has a part in `range`.
template <class F>
void for_each_tensor(const UnitLayout& unit, Segment segment, Range range, F&& f) {
  for (const ParamTensor& tensor : unit.tensors) {
    if (tensor.segment != segment) continue;
    const Range part = shared(range, {tensor.offset, tensor.offset + tensor.numel()});
    if (part.size() > 0) f(tensor, Range{part.begin - tensor.offset, part.end - tensor.offset}, part);
  }
}

/// Elements `range` of this rank's tensor as entries of the whole one: one per contiguous run, or whole
/// columns if runs are parts of rows.
std::vector<std::pair<checkpoint::Entry, Range>> entries_of(const ParamTensor& tensor, Range range) {
  std::vector<std::pair<checkpoint::Entry, Range>> entries;
  if (tensor.is_columns()) {
    entries.push_back({{.key = {}, .range = range}, range});
    entries.back().first.columns = {tensor.whole.part.begin, tensor.whole.part.end, tensor.whole.split};
    return entries;
  }
  for_each_run(tensor, range, [&](Range here, std::int64_t whole) {
    entries.push_back({{.key = {}, .range = {whole, whole + here.size()}}, here});
  });
  return entries;
}

}  // namespace

std::vector<checkpoint::TensorShape> tensors_of(const ParamLayout& layout) {
  std::vector<checkpoint::TensorShape> tensors;
  for (int unit = 0; unit < layout.num_units(); ++unit)
    for (const ParamTensor& tensor : layout.unit(unit).tensors)
      tensors.push_back({tensor.name, tensor.whole.shape});
  return tensors;
}

SavedState::SavedState(Strategy& strategy, const ParamLayout& layout, Communicator& comm) {
  std::vector<std::pair<checkpoint::Entry, Source>> saved;
  std::vector<StateSlice> slices = strategy.state();
  const bool has_master =
      std::ranges::any_of(slices, [](const StateSlice& s) { return s.purpose == Purpose::master; });
  std::erase_if(slices, [&](const StateSlice& slice) { return !is_saved(slice, has_master); });
  const StatePlacement placement(slices, layout, comm);
  for (const StateSlice& slice : slices) {
    for (const Range& mine : placement.even_share(key_of(slice, layout), slice.range)) {
      for_each_tensor(layout.unit(slice.unit), slice.segment, mine,
                      [&](const ParamTensor& tensor, Range of_tensor, Range /*of_segment*/) {
                        for (auto& [entry, part] : entries_of(tensor, of_tensor)) {
                          entry.key = {tensor.name, std::string(name_of(slice.purpose)), slice.version};
                          entry.dtype = slice.values->dtype();
                          const std::int64_t begin = tensor.offset + part.begin - slice.range.begin;
                          saved.push_back({entry, {slice.values, {begin, begin + part.size()}}});
                        }
                      });
    }
  }
  for (const InFlight& tensor : strategy.in_flight()) {
    const at::Tensor flat = tensor.values.view({-1});
    const Range all{0, flat.numel()};
    saved.push_back(
        {{.key = {tensor.name, checkpoint::kInFlight}, .range = all, .dtype = from_aten(flat.scalar_type())},
         {in_tensor(flat), all}});
  }
  std::ranges::stable_sort(saved, std::ranges::greater(),
                           [](const auto& of) { return size_of(of.first.dtype); });
  for (auto& [entry, source] : saved) {
    entries_.push_back(std::move(entry));
    sources_.push_back(std::move(source));
  }
}

Bytes SavedState::bytes() const {
  Bytes sum;
  for (const checkpoint::Entry& entry : entries_)
    sum += sc::bytes_of(Elements(entry.range.size()), entry.dtype);
  return sum;
}

void SavedState::read(
    const std::function<void(std::size_t entry, std::span<const std::byte> piece)>& take) const {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    for_each_piece(sources_[i].range, [&](Range part) {
      at::Tensor piece = at::empty({part.size()}, to_aten(entries_[i].dtype));
      sources_[i].values->read(part, piece);
      take(i, bytes_of(piece));
    });
  }
}

void SavedState::copy(const at::Tensor& bytes) const {
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const std::int64_t size = sc::bytes_of(Elements(entries_[i].range.size()), entries_[i].dtype).value();
    if (begin + size > bytes.numel()) throw ClaimError("a checkpoint's values are more than the plan says");
    const at::Tensor to = bytes.narrow(0, begin, size).view(to_aten(entries_[i].dtype));
    for_each_piece(sources_[i].range, [&](Range part) {
      at::Tensor piece = to.narrow(0, part.begin - sources_[i].range.begin, part.size());
      sources_[i].values->read(part, piece);
    });
    begin += size;
  }
}

// [anchor: by-name-and-range]
namespace {

// Refuses numbers that are not finite: training could not use them, and steps later nobody could tell why the
// loss is NaN.
void require_finite(const checkpoint::Reader& from, const checkpoint::Key& key, Range of_tensor,
                    const at::Tensor& read) {
  const std::optional<std::int64_t> at = first_nonfinite(bytes_of(read), dtype_of(read));
  if (!at) return;
  throw InputError(ExitCode::data, from.path().string(),
                   fmt::format("{} {} holds a number that is not finite, element {}", key.purpose, key.tensor,
                               of_tensor.begin + *at),
                   "an older checkpoint, of before the training went wrong: --resume DIR/step-NNNNNN");
}

struct Source {
  checkpoint::Reader& from;
  const checkpoint::Key& key;
  bool finite;  // refuse numbers that are not finite

  [[nodiscard]] at::Tensor read(Range range) const {
    const at::Tensor values = at::empty({range.size()}, to_aten(from.dtype(key)));
    from.read(key, range, bytes_of(values));
    if (finite) require_finite(from, key, range, values);
    return values;
  }
};

/// Reads elements `range` of this rank's tensor: run by run, or, if runs are parts of rows, from whole rows
/// of which some columns are kept.
void read_tensor(const Source& source, const ParamTensor& tensor, Range range, at::Tensor& out) {
  if (!tensor.is_columns()) {
    for_each_run(tensor, range, [&](Range here, std::int64_t whole) {
      out.narrow(0, here.begin - range.begin, here.size()).copy_(source.read({whole, whole + here.size()}));
    });
    return;
  }
  const std::int64_t row = tensor.whole.split, mine = tensor.run(), first = tensor.whole.part.begin,
                     rows = std::max<std::int64_t>(1, kStatePiece / row);
  for (std::int64_t begin = range.begin; begin < range.end;) {
    const std::int64_t top = begin / mine, end = std::min(range.end, (top + rows) * mine);
    const at::Tensor whole = source.read({top * row, ceil_div(end, mine) * row});
    const at::Tensor columns = whole.view({-1, row}).narrow(1, first, mine).reshape({-1});
    out.narrow(0, begin - range.begin, end - begin).copy_(columns.narrow(0, begin - top * mine, end - begin));
    begin = end;
  }
}

}  // namespace

void restore_state(Strategy& strategy, const ParamLayout& layout, checkpoint::Reader& from) {
  const std::string weights = from.weights();
  for (const StateSlice& slice : strategy.state()) {
    const bool is_weights = slice.purpose == Purpose::parameters || slice.purpose == Purpose::master,
               is_state = slice.purpose == Purpose::momentum || slice.purpose == Purpose::variance;
    if (!is_weights && !is_state && !slice.pending) continue;
    if (slice.version != 0 && !slice.pending) continue;
    // Older versions of rounded weights are stored as parameters, not as a master.
    const std::string purpose =
        is_weights && slice.version == 0 ? weights : std::string(name_of(slice.purpose));
    for_each_piece(slice.range, [&](Range part) {
      const at::Tensor values = at::zeros({part.size()}, at::kFloat);  // padding becomes zero
      for_each_tensor(layout.unit(slice.unit), slice.segment, part,
                      [&](const ParamTensor& tensor, Range of_tensor, Range of_segment) {
                        const checkpoint::Key key{tensor.name, purpose, slice.version};
                        const Source source{from, key, is_weights || is_state};
                        at::Tensor here = values.narrow(0, of_segment.begin - part.begin, of_segment.size());
                        read_tensor(source, tensor, of_tensor, here);
                      });
      slice.write(part, values);
    });
  }
  for (InFlight& tensor : strategy.in_flight()) {
    const checkpoint::Key key{tensor.name, checkpoint::kInFlight};
    const at::Tensor read = at::empty({tensor.values.numel()}, to_aten(from.dtype(key)));
    from.read(key, {0, read.numel()}, bytes_of(read));
    tensor.values.copy_(read.view(tensor.values.sizes()));
  }
}

}  // namespace sc::detail
