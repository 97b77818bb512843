// Checks every operation's arguments. Communicator calls it once, before it issues.
//   Errors  InputError (exit 64): a dtype that no operation carries, not contiguous, sizes that do not fit
//           the group, an overlap other than the documented one, a rank outside the group, a send to oneself.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "common/base/types.h"
#include "common/watch/comm_op.h"

namespace sc {

DType dtype_of(const at::Tensor& t);

/// The calling rank, its group's size, and what it communicates for.
struct Member {
  Rank rank;
  WorldSize world;
  What what = {};
};

/// The operation that these arguments ask for; they have the meaning of Communicator::issue.
Operation check_operation(Member me, CommKind kind, const at::Tensor& from, const at::Tensor& to,
                          std::optional<Rank> peer);
/// For transports that reach host memory only.
void check_on_cpu(Member me, const Operation& op, const at::Tensor& t);
/// For transports of one GPU. `text` names the operation and its rank in messages.
void check_on_gpu(const std::string& text, int device, const at::Tensor& t);

}  // namespace sc
