// Whether a process of this host is running.
#pragma once

#include <cstdint>

namespace sc {

/// Whether a process of this host runs. False for a zombie that its parent has not collected.
bool process_alive(std::int64_t pid);

}  // namespace sc
