// A timeline for the terminal.
#pragma once

#include <string>

#include "pipedream/simulate.h"

namespace sc::pipedream {

/// One line per stage. If all compute starts and ends on multiples of one tick, and there are at most 120
/// ticks: one cell per tick with the action's name at its start, "=" while it continues, "." while the stage
/// is idle. Otherwise 96 columns, each showing what the stage does most of that time: F B I W, "." for idle.
/// Colours are ANSI escapes by kind of action.
std::string timeline_text(const Schedule& schedule, const Timeline& timeline, bool colour);

/// The greatest tick of which all starts and ends of compute are multiples (within 1e-6 of a tick), from 1/12
/// of the shortest action to the action itself; 0 if there is none.
double tick_of(const Schedule& schedule, const Timeline& timeline);

}  // namespace sc::pipedream
