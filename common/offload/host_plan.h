// What strategies hold and send whose optimizer runs on the host, as far as it does not matter where states
// lie. No torch.
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
  Range range;               // of the unit
  std::vector<Range> decay;  // in the piece's own elements
};
/// A rank's, in forward's order, of all units but the first `resident` ones.
std::vector<Piece> cut_pieces(const ParamLayout& layout, Rank rank, std::int64_t piece,
                              std::int64_t resident = 0);
/// Elements of a rank's slice of what does not stay on the device.
Formula slice_on_host(const RunShape& shape, const HostOptions& options);

/// Whether an update's scalars are known without its gradients: nothing clips, no loss is scaled, and what is
/// not finite ends the run.
bool needs_no_norm(const Workload& workload);

/// What stays on the device between steps.
struct Keeps {
  bool gradients = false;  // this rank's slice of them, until the next step's forward
  bool parameters = true;  // this rank's slice of them; otherwise every gather brings it from the host
};

/// Buffers that blocks' parameters take turns in, where not every unit has one.
int pool_of(const ParamLayout& layout, const HostOptions& options);
/// Of states on the host: two where an update may write one that does not count.
int halves_of(const HostOptions& options);
/// How often a step gathers a unit's parameters, of so many micro-batches.
std::int64_t gathers_of(const ParamLayout& layout, const HostOptions& options, std::int64_t micro, int unit);

/// Plans what HostStrategy takes from the ledger.
void plan_device(const RunShape& shape, const HostOptions& options, const Keeps& keeps, MemoryPlan& plan);
/// Sums and gathers of lesson 04, or with whole parameters of lesson 02; each piece goes down and up once,
/// and the step's scalars go down.
CommPlan plan_operations(const RunShape& shape, const HostOptions& options);
/// Parameters come from the host, unit by unit, and gradients leave for it.
Contents contents_of_device(const RunShape& shape, const HostOptions& options);
Facts facts_of_host(const RunShape& shape, const HostOptions& options);
/// A rank's threads for AdamW, and what a plan says of them and of when updates happen.
int adam_threads(const HostOptions& options, WorldSize world);
std::string updates_in_words(const RunShape& shape, const HostOptions& options);

///   Errors  InputError (exit 64) for settings that this shape cannot have.
void refuse_contradictions(const RunShape& shape, const HostOptions& options);

}  // namespace sc
