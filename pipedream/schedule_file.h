// Schedules as files. What is written reads back equal; what is read is within range (require_shape) and may
// still break every rule of check.h.
//
// CSV: two tables, stages numbered from 0, a stage's actions in order:
//   schedule,stages,microbatches,chunks,versions
//   1f1b,2,1,1,flush
//   stage,kind,microbatch,chunk,version
//   0,forward,0,0,0
//   0,step,-1,0,1
// JSON: the actions in the short form of to_text, one list per stage:
//   { "schedule": "1f1b", "stages": 2, "microbatches": 1, "chunks": 1, "versions": "flush",
//     "actions": [["F0", ...], [...]] }
#pragma once

#include <cstddef>
#include <string>

#include "pipedream/schedule.h"

namespace sc::pipedream {

std::string to_csv(const Schedule& schedule);
std::string to_json(const Schedule& schedule);

/// Reads a schedule from a text that messages call `where`. Throws InputError (data), for CSV with the line.
Schedule schedule_from_csv(const std::string& text, const std::string& where);
Schedule schedule_from_json(const std::string& text, const std::string& where);

/// Reads a file; the ending of its name, .csv or .json, gives the format. Throws InputError: usage for
/// another ending or a file that cannot be opened.
Schedule read_schedule(const std::string& path);

/// Ends every reader: checks require_shape, and a name of 1 to 64 letters, digits and "_.-". Messages begin
/// with `where`.
void require_readable(const Schedule& schedule, const std::string& where);

/// The largest text that is read, in bytes: a schedule of 600,000 actions, 64 stages with 2,000
/// micro-batches.
inline constexpr std::size_t kMostTextBytes = std::size_t{8} << 20U;

/// The text of a file. Throws InputError: usage if it cannot be read, data if it has more than
/// kMostTextBytes.
std::string read_text(const std::string& path);
/// Writes a text to a file. Throws InputError (cannot_write).
void write_text(const std::string& path, const std::string& text);

}  // namespace sc::pipedream
