#include "lessons/01_data_parallel/exercise/convert.h"

#include <vector>

namespace sc {

void train(Communicator& comm, TrainingData& data, TinyGpt& model, Results& results) {
  const std::int64_t me = to_int(comm.rank()), share = data.micro_batches() / to_int(comm.size());
  model.init(data.fresh_seed());
  comm.broadcast(model.params(), Rank{0}).wait();  // 2: or a seed that all ranks know

  for (std::int64_t step = 0; step < data.steps(); ++step) {
    std::vector<Batch> batches;
    for (std::int64_t j = me * share; j < (me + 1) * share; ++j) batches.push_back(data.batch(step, j));  // 1
    const std::int64_t targets = data.step_targets(step);                                                 // 4

    model.sums().zero_();
    Write write = Write::overwrite;
    for (const Batch& batch : batches) {
      model.forward_backward(batch, 1.0 / static_cast<double>(targets), write);
      write = Write::accumulate;
    }
    Ticket grads = comm.all_reduce(model.grads());  // 3
    Ticket loss = comm.all_reduce(model.sums());
    grads.wait();
    loss.wait();
    model.update(data.learning_rate(step));

    const double* sums = model.sums().const_data_ptr<double>();
    if (me == 0) results.log(step, sums[0] / sums[1]);  // 5
  }
  if (me == 0) results.save(model.params());
}

}  // namespace sc
