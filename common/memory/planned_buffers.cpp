#include "common/memory/planned_buffers.h"

#include <algorithm>

namespace sc {

at::Tensor PlannedBuffers::zeros(const std::string& name, const MakeMemory& window) {
  const auto found = std::ranges::find(left_, name, &Buffer::name);
  if (found == left_.end()) return {};
  const Buffer buffer = *found;
  left_.erase(found);
  return ledger_.zeros(buffer, window);
}

std::vector<at::Tensor> PlannedBuffers::all_zeros(const std::string& name) {
  std::vector<at::Tensor> all;
  for (at::Tensor next = zeros(name); next.defined(); next = zeros(name)) all.push_back(next);
  return all;
}

std::vector<std::shared_ptr<void>> PlannedBuffers::reserve_disk() {
  std::vector<std::shared_ptr<void>> reserved;
  for (const Buffer& buffer : left_)
    if (buffer.place == Place::disk)
      reserved.push_back(ledger_.reserve(buffer.purpose, buffer.name, buffer.bytes(), buffer.place));
  return reserved;
}

}  // namespace sc
