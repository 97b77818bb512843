// Which weights each action reads, and when a stage steps, keeps and frees versions.
#pragma once

#include "pipedream/schedule.h"

namespace sc::pipedream {

/// Adds versions, steps, stashes and drops to a schedule of compute actions, by the schedule's rule.
///   every    a stage steps after the backward (or its weights' half) that completes `every` microbatches.
///   Copies   versions that a later action reads are stashed before the step that replaces them, and dropped
///            after the last read. Order at a step: drop what no later action reads, stash the newest version
///            if a later action reads it, step. So there are never more copies than versions alive.
Schedule with_versions(const Schedule& compute, int every);

/// The version that `microbatch` reads under vertical_sync with a step for every `every` microbatches: stage
/// 0's version when it enters.
int vertical_version(int microbatch, int stages, int every = 1);
/// The version that `microbatch` reads under two_buffers with a step for every `every` microbatches.
int two_buffer_version(int microbatch, int every);

}  // namespace sc::pipedream
