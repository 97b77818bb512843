// Communication of a profiled run: its times within the steps, and the times of the same operations alone.
#pragma once

#include <span>
#include <vector>

#include "common/comm/recording_communicator.h"
#include "common/records/profile.h"
#include "common/records/record.h"
#include "common/watch/op_span.h"

namespace sc {

/// The times of training steps from `first_step` on, by kind of operation. Operations whose begin or end was
/// not measured are left out.
std::vector<ProfileCommRow> communication_rows(std::span<const OpSpan> operations, std::int64_t first_step);

/// Sets `alone` of all-reduces and reduce-scatters: each operation of `plan`, the plan of one step, is
/// repeated on zeros with nothing else running, unless a rank has no memory left for it. All-gathers are left
/// out, because a lesson's lie between windows (Communicator::window), and others would be different
/// operations. Collective; on the current GPU.
void measure_alone(Communicator& comm, const CommPlan& plan, Profile& profile);

/// Adds to the profile all that concerns communication: waits of `steps`, the profiled ones,
/// communication_rows() and measure_alone(). Nothing in a world of one. Collective; no other work may run.
void add_communication(std::span<const StepRecord> steps, const CommPlan& plan, RecordingCommunicator& comm,
                       Profile& profile);

}  // namespace sc
