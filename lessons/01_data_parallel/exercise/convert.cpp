#include "lessons/01_data_parallel/exercise/convert.h"

#include <vector>

namespace sc {

/// Trains `model`, one replica per rank. As shipped it is the program of one device, which every rank would
/// run for itself; with five changes it is data parallel, on any number of ranks that divides
/// data.micro_batches().
///   Rows     rank r trains on the r-th contiguous run of a step's micro-batches, in ascending order.
///   Init     every rank starts from rank 0's parameters.
///   Order    a rank accumulates its micro-batches in place; then ranks are summed in rank order, once per
///            step: bit for bit lesson 00 with virtual_ranks = N.
///   Divisor  the scale of every micro-batch is 1 / targets of the *global* batch.
///   Results  rank 0 alone logs and saves; the logged loss is the mean over the global batch's targets.
///   Cost     per step: P elements of gradient all-reduced, and at most 4 other numbers.
///   After    every ticket has been waited for.
void train(Communicator& comm, TrainingData& data, TinyGpt& model, Results& results) {
  model.init(data.fresh_seed());  // TODO 2: replicas start equal

  for (std::int64_t step = 0; step < data.steps(); ++step) {
    std::vector<Batch> batches;
    std::int64_t targets = 0;
    for (std::int64_t j = 0; j < data.micro_batches(); ++j) {  // TODO 1: a rank's share of the rows
      batches.push_back(data.batch(step, j));
      targets += count_targets(batches.back());  // TODO 4: the divisor is that of the global batch
    }

    model.sums().zero_();
    Write write = Write::overwrite;
    for (const Batch& batch : batches) {
      model.forward_backward(batch, 1.0 / static_cast<double>(targets), write);
      write = Write::accumulate;
    }
    // TODO 3: sum the gradients over the ranks
    model.update(data.learning_rate(step));

    const double* sums = model.sums().const_data_ptr<double>();
    results.log(step, sums[0] / sums[1]);  // TODO 5: rank 0 alone logs, and saves; of which loss?
  }
  results.save(model.params());
}

}  // namespace sc
