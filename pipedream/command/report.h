// Lines that several subcommands print.
#pragma once

#include <string>

#include "pipedream/check.h"
#include "pipedream/command/command.h"

namespace sc::pipedream {

/// A schedule in one line: "1f1b: 4 stages, 4 microbatches, versions flush (simulated)".
std::string headline(const Schedule& schedule);
/// All violations and the ring of a deadlock, one line each.
std::string findings_text(const CheckReport& report);
/// Checks a schedule. If it breaks a rule, prints which to `console.err` and returns 65, otherwise returns 0.
int refuse_broken(const Schedule& schedule, const Console& console);

}  // namespace sc::pipedream
