// The table of flags, shared by the parser and --help.
#pragma once

#include <vector>

#include "common/config/command_line.h"

namespace sc {

std::vector<Flag> all_flags(const Program& program);

}  // namespace sc
