// Buffers and operations of strategies whose optimizer runs on the host, as far as they do not depend on
// where the states lie. No torch.
#pragma once

#include <string>
#include <vector>

#include "common/model/param_layout.h"
#include "common/offload/options.h"
#include "common/strategy/plans.h"

namespace sc {

/// Elements of one unit's slice that are copied and updated together.
struct Piece {
  int unit = 0;
  Range range;               // elements of the unit
  std::vector<Range> decay;  // ranges within the piece
};
/// A rank's pieces in forward's order, for all units except the first `resident` ones.
std::vector<Piece> cut_pieces(const ParamLayout& layout, Rank rank, std::int64_t piece,
                              std::int64_t resident = 0);
/// Elements of the part of a rank's slice that does not stay on the device.
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
/// How often a step with `micro` micro-batches gathers a unit's parameters.
std::int64_t gathers_of(const ParamLayout& layout, const HostOptions& options, std::int64_t micro, int unit);

/// Adds what HostStrategy takes from the ledger.
void plan_device(const RunShape& shape, const HostOptions& options, const Keeps& keeps, MemoryPlan& plan);
/// The sums and gathers of lesson 04, or with whole parameters those of lesson 02; each piece is copied down
/// and up once, and the step's scalars down.
CommPlan plan_operations(const RunShape& shape, const HostOptions& options);
/// Parameters come from the host unit by unit, and gradients go to it.
Contents contents_of_device(const RunShape& shape, const HostOptions& options);
Facts facts_of_host(const RunShape& shape, const HostOptions& options);
/// The number of AdamW threads of a rank, and what a plan says about them and about the time of updates.
int adam_threads(const HostOptions& options, WorldSize world);
std::string updates_in_words(const RunShape& shape, const HostOptions& options);

/// Refuses settings that this shape cannot have.
///   Errors  InputError (exit 64)
void refuse_contradictions(const RunShape& shape, const HostOptions& options);

}  // namespace sc
