// Whether a process of this host still runs.
#pragma once

#include <cstdint>

namespace sc {

/// False if no such process exists, or if it has died and only waits to be collected by its parent.
bool process_alive(std::int64_t pid);

}  // namespace sc
