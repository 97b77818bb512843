// System calls that a container forbids. No torch.
#pragma once

#include <vector>

namespace sc {

/// From now on these system calls (by number) fail with `error` for the calling thread and for those that it
/// starts; this cannot be undone. Returns false, with nothing changed, if this machine does not allow it.
bool refuse_calls(const std::vector<long>& numbers, int error);

}  // namespace sc
