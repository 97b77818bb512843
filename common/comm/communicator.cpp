#include "common/comm/communicator.h"

#include "common/comm/op_check.h"

namespace sc {

Ticket Communicator::all_reduce(at::Tensor& t, const What& what) {
  return issue(check_all_reduce({rank(), size(), what}, t), t, t, {});
}

Ticket Communicator::reduce_scatter(const at::Tensor& full, at::Tensor& shard, const What& what) {
  return issue(check_reduce_scatter({rank(), size(), what}, full, shard), full, shard, {});
}

Ticket Communicator::all_gather(const at::Tensor& shard, at::Tensor& full, const What& what) {
  return issue(check_all_gather({rank(), size(), what}, shard, full), shard, full, {});
}

Ticket Communicator::broadcast(at::Tensor& t, Rank root, const What& what) {
  return issue(check_broadcast({rank(), size(), what}, t, root), t, t, root);
}

Ticket Communicator::send(const at::Tensor& t, Rank to, const What& what) {
  return issue(check_send({rank(), size(), what}, t, to), t, t, to);
}

Ticket Communicator::recv(at::Tensor& t, Rank from, const What& what) {
  return issue(check_recv({rank(), size(), what}, t, from), t, t, from);
}

}  // namespace sc
