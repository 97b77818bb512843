// Communication of a profiled run: its times in the steps, and those of the same operations alone.
#pragma once

#include <span>
#include <vector>

#include "common/comm/recording_communicator.h"
#include "common/records/profile.h"
#include "common/records/record.h"
#include "common/watch/op_span.h"

namespace sc {

/// By kind, of training steps from `first_step` on: operations whose beginning and end are known.
std::vector<ProfileCommRow> communication_rows(std::span<const OpSpan> operations, std::int64_t first_step);

/// Fills in `alone` of all-reduces and reduce-scatters: each operation of `plan`, which is that of one step,
/// is done on zeros some times in a row, with nothing beside it; not where a rank has no memory left for it.
/// All-gathers are left out: a lesson's lie between windows (Communicator::window), and others are other
/// operations. Collective; on the current GPU.
void measure_alone(Communicator& comm, const CommPlan& plan, Profile& profile);

/// Fills in all that a profile says of communication: waits of the profiled steps (those of `steps` after the
/// warm-up), and the rows above with what they take alone. Nothing in a world of one. Collective, where
/// nothing else runs any more.
void add_communication(std::span<const StepRecord> steps, const CommPlan& plan, RecordingCommunicator& comm,
                       Profile& profile);

}  // namespace sc
