// Checks every operation's arguments; Communicator does so before it issues.
//   Errors  InputError (exit 64): a dtype that no operation carries, not contiguous, sizes that do not fit
//   the group, an overlap other than the documented one, a rank outside the group, a send to oneself.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "common/base/types.h"
#include "common/watch/comm_op.h"

namespace sc {

DType dtype_of(const at::Tensor& t);

/// The calling rank, the size of its group, and what for it communicates.
struct Member {
  Rank rank;
  WorldSize world;
  What what = {};
};

/// Checks the arguments of Communicator::issue, and describes the operation.
Operation check_operation(Member me, CommKind kind, const at::Tensor& from, const at::Tensor& to,
                          std::optional<Rank> peer);
/// Refuses a tensor on a GPU, for transports that reach host memory only.
void check_on_cpu(Member me, const Operation& op, const at::Tensor& t);
/// Refuses a tensor that is not on this GPU. `text` names the operation and its rank in messages.
void check_on_gpu(const std::string& text, int device, const at::Tensor& t);

}  // namespace sc
