// What every operation's arguments must be: each function checks one and describes it. Communicator asks them
// once, before it issues.
//   Errors  InputError (exit 64): a dtype that no operation carries, not contiguous, sizes that do not fit
//           the group, an overlap other than the documented one, a rank outside the group, a send to oneself.
#pragma once

#include <ATen/core/Tensor.h>

#include "common/base/types.h"
#include "common/watch/comm_op.h"

namespace sc {

/// DType of a tensor that is to travel.
DType dtype_of(const at::Tensor& t);

/// Who asks, of how many, for what.
struct Member {
  Rank rank;
  WorldSize world;
  What what = {};
};

Operation check_all_reduce(Member me, const at::Tensor& t);
Operation check_reduce_scatter(Member me, const at::Tensor& full, const at::Tensor& shard);
Operation check_all_gather(Member me, const at::Tensor& shard, const at::Tensor& full);
Operation check_broadcast(Member me, const at::Tensor& t, Rank root);
Operation check_send(Member me, const at::Tensor& t, Rank to);
Operation check_recv(Member me, const at::Tensor& t, Rank from);
/// For transports that only reach host memory.
void check_on_cpu(Member me, const Operation& op, const at::Tensor& t);

}  // namespace sc
