// Whether a process of this host is running.
#pragma once

#include <cstdint>

namespace sc {

/// False if there is no such process, or only a zombie that its parent has not collected.
bool process_alive(std::int64_t pid);

}  // namespace sc
