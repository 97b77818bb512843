// Where a tensor rank's part of a unit lies in the whole unit. No torch.
#pragma once

#include <algorithm>

#include "common/model/param_layout.h"

namespace sc {

/// Splits `piece` of this rank's segment into ranges that are contiguous both here and in the whole unit, and
/// calls f(range in `here`'s segment, segment of the whole unit, where the range begins there) for each, in
/// order. Padding is skipped. `whole` is here.whole().
template <class F>
void for_each_place(const ParamLayout& here, const ParamLayout& whole, int unit, Segment segment, Range piece,
                    const F& f) {
  for (const ParamTensor& t : here.unit(unit).tensors) {
    const Range part{std::max(piece.begin, t.offset), std::min(piece.end, t.offset + t.numel())};
    if (t.segment != segment || part.size() <= 0) continue;
    const ParamTensor& all = *whole.find(unit, t.name);
    for_each_run(t, {part.begin - t.offset, part.end - t.offset}, [&](Range run, std::int64_t at) {
      f(Range{t.offset + run.begin, t.offset + run.end}, all.segment, all.offset + at);
    });
  }
}

}  // namespace sc
