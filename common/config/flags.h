// The flags themselves: one table for the parser and for --help.
#pragma once

#include <vector>

#include "common/config/command_line.h"

namespace sc {

/// The common flags, then the program's own; `argument` is empty for a switch.
std::vector<Flag> all_flags(const Program& program);

}  // namespace sc
