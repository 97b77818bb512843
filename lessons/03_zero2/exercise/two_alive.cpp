#include "lessons/03_zero2/exercise/two_alive.h"

#include <vector>

namespace sc {

/// Runs this rank's backward; afterwards every slice holds the sum over ranks.
///   Memory   full gradients come from `ledger`, as Purpose::gradients. Never more than two are alive.
///   Cost     one reduce-scatter per block.
///   Overlap  a block's reduce-scatter is issued before the next block is computed, and while a block is
///            computed, the one computed before it may still be on its way: nobody waits earlier.
///   After    every ticket has been waited for.
void backward_into_slices(BlocksBackward& backward, Ledger& ledger, Communicator& comm) {
  // TODO: this is right, and it holds every block's full gradient, as lesson 02 does. Two buffers can take
  // turns.
  std::vector<at::Tensor> grads;
  std::vector<Ticket> tickets;
  for (int block = 0; block < backward.num_blocks(); ++block)
    grads.push_back(ledger.zeros(Purpose::gradients, "grads_full", {backward.size()}, DType::f32));
  for (int block = backward.num_blocks() - 1; block >= 0; --block) {
    at::Tensor& full = grads[static_cast<std::size_t>(block)];
    backward.compute(block, full);
    tickets.push_back(comm.reduce_scatter(full, backward.slice(block)));
  }
  for (Ticket& ticket : tickets) ticket.wait();
}

}  // namespace sc
