// The program `choose`, from its command line to what it prints.
#pragma once

#include <functional>
#include <ostream>

#include "measured.h"

namespace sc::choose {

inline constexpr const char* kMeasured = "lessons/choose/measured.json";

/// Runs argv as main() has it; `measured` reads kMeasured. Returns 0.
///   Errors  InputError 64; 69 after the table, if nothing fits; what `measured` throws.
int run_command(int argc, const char* const* argv, const std::function<Measured()>& measured,
                std::ostream& out);

}  // namespace sc::choose
