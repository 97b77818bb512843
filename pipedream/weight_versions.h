// Which weights each action reads, and when a stage steps, keeps and frees versions.
#pragma once

#include "pipedream/schedule.h"

namespace sc::pipedream {

/// Adds versions, steps, stashes and drops to a schedule of compute actions, by the schedule's rule.
///   every    a stage steps behind the backward (or the weights' half of it) that completes `every`
///            microbatches.
///   Copies   versions that a later action reads are stashed before the step that replaces them, and dropped
///            behind the last read. Order at a step: drop what nobody reads any more, stash the newest if
///            somebody will, step. So the copies in memory are never more than the versions alive.
Schedule with_versions(const Schedule& compute, int every);

/// The version that `microbatch` reads under vertical_sync with a step every `every` microbatches: what stage
/// 0 has when it enters.
int vertical_version(int microbatch, int stages, int every = 1);
/// The version that `microbatch` reads under two_buffers with a step every `every` microbatches.
int two_buffer_version(int microbatch, int every);

}  // namespace sc::pipedream
