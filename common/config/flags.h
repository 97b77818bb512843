// The table of flags, shared by the parser and --help.
#pragma once

#include <vector>

#include "common/config/command_line.h"

namespace sc {

/// The common flags, followed by the program's own.
std::vector<Flag> all_flags(const Program& program);

}  // namespace sc
