// System calls that a container forbids. No torch.
#pragma once

#include <vector>

namespace sc {

/// From now on these system calls (by number) fail with `error` for the calling thread and for those that it
/// starts; there is no way back. False, and nothing happens, where this machine lets nobody do that.
bool refuse_calls(const std::vector<long>& numbers, int error);

}  // namespace sc
