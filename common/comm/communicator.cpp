#include "common/comm/communicator.h"

#include "common/comm/op_check.h"

namespace sc {

Ticket Communicator::checked(CommKind kind, const at::Tensor& from, const at::Tensor& to,
                             std::optional<Rank> peer, const What& what) {
  return issue(check_operation({rank(), size(), what}, kind, from, to, peer), from, to, peer);
}

}  // namespace sc
