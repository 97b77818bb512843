// Makes system calls fail, as a container that forbids them does. No torch.
#pragma once

#include <vector>

namespace sc {

/// From now on these system calls (by number) fail with `error` for the calling thread and threads that it
/// starts; this cannot be undone. Returns false, with nothing changed, if the machine does not support it.
bool refuse_calls(const std::vector<long>& numbers, int error);

}  // namespace sc
