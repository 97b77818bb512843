// Buffers and operations of strategies whose optimizer runs on the host, wherever the states lie. No torch.
#pragma once

#include <string>
#include <vector>

#include "common/model/param_layout.h"
#include "common/offload/options.h"
#include "common/strategy/plans.h"

namespace sc {

/// A run of elements in one unit's slice that are copied and updated together.
struct Piece {
  int unit = 0;
  Range range;               // elements of the unit
  std::vector<Range> decay;  // ranges within the piece
};
/// Cuts a rank's slices of all units but the first `resident` into pieces, in forward's order.
std::vector<Piece> cut_pieces(const ParamLayout& layout, Rank rank, std::int64_t piece,
                              std::int64_t resident = 0);
/// The number of elements in the part of a rank's slice whose states are on the host.
Formula slice_on_host(const RunShape& shape, const HostOptions& options);

/// Whether an update's scalars are known without its gradients: there is no clipping and no loss scale, and a
/// number that is not finite ends the run.
bool needs_no_norm(const Workload& workload);

/// What stays on the device between steps.
struct Keeps {
  bool gradients = false;  // this rank's slice of them, until the next step's forward
  bool parameters = true;  // this rank's slice of them; otherwise every gather brings it from the host
};

/// The number of buffers in which the blocks' parameters take turns, if not every unit has one.
int pool_of(const ParamLayout& layout, const HostOptions& options);
/// The number of copies of the states on the host: two if an update may have to be repeated.
int halves_of(const HostOptions& options);
/// How often a step of `micro` micro-batches gathers a unit's parameters.
std::int64_t gathers_of(const ParamLayout& layout, const HostOptions& options, std::int64_t micro, int unit);

/// Adds the buffers that HostStrategy allocates.
void plan_device(const RunShape& shape, const HostOptions& options, const Keeps& keeps, MemoryPlan& plan);
/// A step's operations: the sums and gathers of lesson 04, or with whole parameters those of lesson 02; each
/// piece is copied down and up once, and the step's scalars down.
CommPlan plan_operations(const RunShape& shape, const HostOptions& options);
/// What the device holds when: parameters come from the host unit by unit, and gradients go to it.
Contents contents_of_device(const RunShape& shape, const HostOptions& options);
Facts facts_of_host(const RunShape& shape, const HostOptions& options);
/// The number of a rank's AdamW threads (adam_threads), and what a plan says of them and of an update's time.
int adam_threads(const HostOptions& options, WorldSize world);
std::string updates_in_words(const RunShape& shape, const HostOptions& options);

/// Refuses settings that contradict the run's shape.
///   Errors  InputError (exit 64)
void refuse_contradictions(const RunShape& shape, const HostOptions& options);

}  // namespace sc
