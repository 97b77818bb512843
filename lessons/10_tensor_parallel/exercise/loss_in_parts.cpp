#include "lessons/10_tensor_parallel/exercise/loss_in_parts.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include <limits>

namespace sc {

/// Cross entropy of n rows whose logits are spread over ranks by columns; every rank calls it with its own.
///   targets      [n] int64, tokens of the whole vocabulary, the same on every rank; < 0: the row has no
///                loss.
///   Result       loss and number of the targets among this rank's tokens: over all ranks each counts once.
///   part.logits  become their gradient, in place: scale * (softmax - onehot); 0 in padding, and in rows
///                without loss.
///   Cost         one all_gather in which a rank sends two fp32 numbers per row, and nothing else.
LossPart loss_in_parts(VocabPart& part, const at::Tensor& targets, double scale, Communicator& comm) {
  const std::int64_t n = part.logits.size(0), v = part.logits.size(1), ranks = to_int(comm.size());
  // TODO: this is right, and every rank receives all logits for two numbers per row, `max` and `sum`. Each
  // rank knows its own share of both.
  part.logits.narrow(1, part.columns, v - part.columns).fill_(-std::numeric_limits<double>::infinity());
  at::Tensor all = at::empty({ranks, n, v}, at::kFloat);
  comm.all_gather(part.logits, all).wait();
  const at::Tensor of_row = all.transpose(0, 1).reshape({n, ranks * v}), max = of_row.amax(1),
                   sum = (of_row - max.view({n, 1})).exp().sum(1);  // [n]

  LossPart mine;
  const at::Tensor log_sum = sum.log() + max;
  at::Tensor gradient = part.logits;
  for (std::int64_t row = 0; row < n; ++row) {
    const std::int64_t target = targets[row].item<std::int64_t>(), column = target - part.first;
    const bool here = 0 <= column && column < part.columns;
    if (here) {
      mine.sum += (log_sum[row] - part.logits[row][column]).item<double>();
      ++mine.tokens;
    }
    gradient[row].sub_(max[row]).exp_().mul_(target < 0 ? 0 : scale / sum[row].item<double>());
    if (here) gradient[row][column].sub_(scale);
  }
  return mine;
}

}  // namespace sc
