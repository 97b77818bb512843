#include "lessons/02_zero1/exercise/halve.h"

#include <vector>

namespace sc {

void reduce_update_publish(OwnedStep& step, Communicator& comm) {
  const auto slice = [&](at::Tensor& t, int unit) {
    return t.narrow(0, step.mine(unit).begin, step.mine(unit).size());
  };
  std::vector<Ticket> tickets;
  for (int unit = 0; unit < step.num_units(); ++unit) {
    at::Tensor mine = slice(step.grads(unit), unit);
    tickets.push_back(comm.reduce_scatter(step.grads(unit), mine));
  }
  for (int unit = 0; unit < step.num_units(); ++unit) {
    Ticket& ticket = tickets[static_cast<std::size_t>(unit)];
    ticket.wait();
    step.update(unit);
    ticket = comm.all_gather(slice(step.params(unit), unit), step.params(unit));
  }
  for (Ticket& ticket : tickets) ticket.wait();
}

}  // namespace sc
