#include "lessons/01_data_parallel/exercise/deadlock.h"

namespace sc {

void pass_right(Communicator& comm, const at::Tensor& mine, at::Tensor& theirs) {
  const int n = static_cast<int>(comm.size()), me = static_cast<int>(comm.rank());
  // The receive and the send are under way before anybody waits, so that no rank's wait keeps another from
  // being served.
  Ticket received = comm.recv(theirs, Rank{(me + n - 1) % n});
  comm.send(mine, Rank{(me + 1) % n}).wait();
  received.wait();
}

}  // namespace sc
