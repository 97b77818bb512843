// Bytes that a model holds beside its parameters, from formulas (common/model/activation_plan.cpp), not from
// the allocating functions. No torch.
#pragma once

#include "common/memory/plan.h"

namespace sc {

/// Kept from forward for backward by one block (BlockSaved's own buffers; the block's input x aside).
Bytes plan_saved_bytes(const RunShape& run);
/// One Workspace, head included.
Bytes plan_workspace_bytes(const RunShape& run);
/// What library operations allocate inside one call and free before or with its return, at most (attention's
/// threads, ATen's fresh results before they are copied). Not in the ledger: the allocator witness allows
/// exactly this.
///   CPU, fp32   the peak of a forward and backward, exact with one thread; with more an upper bound
///   (threads' buffers need not overlap). CPU, 16 bit an upper bound: ATen widens operands, oneDNN packs
///   them. CUDA        aten's written-out attention, an upper bound.
Bytes plan_op_scratch_bytes(const RunShape& run);

}  // namespace sc
