#include "tests/support/faulty_block_io.h"

#include <algorithm>
#include <stdexcept>

namespace sc {

void FaultyBlockIo::submit(const BlockRequest& request) {
  const auto size = static_cast<std::int64_t>(request.bytes.size());
  const std::int64_t turn = request.kind == fault_.kind ? matched_++ - fault_.nth : -1;
  if (turn < 0 || turn >= fault_.times) return inner_->submit(request);
  BlockRequest passed = request;
  switch (fault_.what) {
    case What::answers:
      return answers_.push_back({request.id, fault_.value});
    case What::loses:
      return answers_.push_back({request.id, size});
    case What::cuts:  // O_DIRECT moves whole pages only: what is beyond the cut moves too, and nobody says so
      cuts_[request.id] = std::min(fault_.value, size);
      passed.bytes = request.bytes.first(static_cast<std::size_t>(round_up(cuts_[request.id], kBlockAlign)));
      return inner_->submit(passed);
    case What::flips:
      flips_[request.id] = request.bytes.data();
      return inner_->submit(request);
    case What::breaks:
      throw std::runtime_error("a broken queue");
  }
}

BlockResult FaultyBlockIo::reap() {
  if (!answers_.empty()) {
    const BlockResult answer = answers_.front();
    answers_.pop_front();
    return answer;
  }
  BlockResult result = inner_->reap();
  if (const auto cut = cuts_.extract(result.id)) result.res = std::min(result.res, cut.mapped());
  if (const auto flip = flips_.extract(result.id)) *flip.mapped() ^= std::byte{1};
  return result;
}

}  // namespace sc
