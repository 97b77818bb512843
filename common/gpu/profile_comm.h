// Communication of a profiled run: its times within the steps, and the times of the same operations alone.
#pragma once

#include <span>
#include <vector>

#include "common/comm/recording_communicator.h"
#include "common/records/profile.h"
#include "common/records/record.h"
#include "common/watch/op_span.h"

namespace sc {

/// Times by kind of operation, of training steps from `first_step` on. Operations whose begin or end is
/// unknown are left out.
std::vector<ProfileCommRow> communication_rows(std::span<const OpSpan> operations, std::int64_t first_step);

/// Fills in `alone` for all-reduces and reduce-scatters: each operation of `plan`, the plan of one step, is
/// repeated on zeros with nothing else running, unless a rank has no memory left for it. All-gathers are left
/// out, because a lesson's lie between windows (Communicator::window), and others would be different
/// operations. Collective; on the current GPU.
void measure_alone(Communicator& comm, const CommPlan& plan, Profile& profile);

/// Fills in everything about communication: waits of the profiled steps (`steps` after the warm-up), and the
/// rows above with the times alone. Does nothing in a world of one. Collective; call it when nothing else
/// runs any more.
void add_communication(std::span<const StepRecord> steps, const CommPlan& plan, RecordingCommunicator& comm,
                       Profile& profile);

}  // namespace sc
