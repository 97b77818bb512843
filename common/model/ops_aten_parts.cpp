// The reference for the operations of a tensor rank (the last part of ops.h).
#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "common/model/ops_aten.h"

namespace sc {
namespace {

/// Which of the token ids are in this rank's `rows`, and their index there (arbitrary for the others).
struct Mine {
  Mine(const at::Tensor& ids, Range rows)
      : index((ids.view({-1}) - rows.begin).clamp_(0, rows.size() - 1)),
        others(ids.view({-1}).lt(rows.begin).logical_or_(ids.view({-1}).ge(rows.end))) {}
  at::Tensor index, others;
};

/// Cuts a run of tokens where rows of the batch end, and calls f(first token, tokens, position of the first)
/// for each piece.
template <class F>
void for_each_row(Range run, std::int64_t length, const F& f) {
  for (std::int64_t at = run.begin; at < run.end;) {
    const std::int64_t end = std::min(run.end, (at / length + 1) * length);
    f(at - run.begin, end - at, at % length);
    at = end;
  }
}

}  // namespace

void AtenOps::embed_part(const at::Tensor& tokens, const at::Tensor& wte, Range rows, at::Tensor& x) const {
  const Mine mine(tokens, rows);
  at::index_select_out(x, wte, 0, mine.index);
  x.masked_fill_(mine.others.unsqueeze(1), 0);
}

// Adds zeros to some row for tokens of other ranks, so that no shape depends on the tokens and a graph can
// hold it.
void AtenOps::embed_part_backward(const at::Tensor& tokens, const at::Tensor& grad_x, Range rows,
                                  at::Tensor& grad_wte, Write write) const {
  if (write == Write::overwrite) grad_wte.zero_();
  // On a GPU index_put_ with accumulation sorts by row, whereas index_add_ would add in any order.
  const Mine mine(tokens, rows);
  const at::Tensor added = grad_x.to(grad_wte.scalar_type()).masked_fill(mine.others.unsqueeze(1), 0);
  grad_wte.index_put_({std::optional<at::Tensor>(mine.index)}, added, /*accumulate=*/true);
}

void AtenOps::add_positions(const at::Tensor& sum, const at::Tensor& wpe, Range run, std::int64_t length,
                            at::Tensor& x) const {
  for_each_row(run, length, [&](std::int64_t first, std::int64_t rows, std::int64_t position) {
    at::Tensor out = x.narrow(0, first, rows);
    at::add_out(out, sum.narrow(0, first, rows), wpe.narrow(0, position, rows));
  });
}

void AtenOps::positions_backward(const at::Tensor& grad_x, Range run, std::int64_t length,
                                 at::Tensor& grad_wpe, Write write) const {
  if (write == Write::overwrite) grad_wpe.zero_();
  for_each_row(run, length, [&](std::int64_t first, std::int64_t rows, std::int64_t position) {
    grad_wpe.narrow(0, position, rows).add_(grad_x.narrow(0, first, rows));
  });
}

void AtenOps::add_norm(const AddNorm& op) const {
  at::Tensor x = op.x, y = op.y, mean = op.mean, rstd = op.rstd;
  at::add_out(x, op.in, op.bias);
  x.add_(op.sum);
  if (op.weight.defined()) layer_norm(x, op.weight, op.norm_bias, y, mean, rstd);
}

void AtenOps::softmax_part(const at::Tensor& logits, std::int64_t columns, at::Tensor& statistics) const {
  at::Tensor max = statistics.select(1, 0), sum = statistics.select(1, 1);
  if (columns == 0) {
    max.fill_(-std::numeric_limits<float>::infinity());
    sum.zero_();
    return;
  }
  const at::Tensor real = logits.narrow(1, 0, columns).to(at::kFloat);
  max.copy_(real.amax(at::IntArrayRef{1}));
  sum.copy_((real - max.unsqueeze(1)).exp_().sum(at::IntArrayRef{1}));
}

// [anchor: one-collective-in-the-loss]
// Each rank's sum is of exp(logit - m_r) with its own maximum m_r; with M, the largest of these, it becomes a
// sum of exp(logit - M).
void AtenOps::softmax_gradient(at::Tensor& logits, const at::Tensor& targets, Range columns,
                               const at::Tensor& statistics, const at::Tensor& scale, at::Tensor& loss_sum,
                               at::Tensor& tokens) const {
  const at::Tensor max = statistics.select(2, 0).amax(at::IntArrayRef{0});
  at::Tensor sum = at::zeros_like(max);
  for (std::int64_t rank = 0; rank < statistics.size(0); ++rank) {
    const at::Tensor part = statistics.select(0, rank);
    sum.add_((part.select(1, 0) - max).exp_().mul_(part.select(1, 1)));
  }
  if (columns.size() == 0) {
    if (scale.defined()) logits.zero_();
    return;
  }
  at::Tensor real = logits.narrow(1, 0, columns.size());
  const Mine mine(targets, columns);
  const at::Tensor shifted = real.to(at::kFloat) - max.unsqueeze(1), index = mine.index.unsqueeze(1);
  const at::Tensor loss = (sum.log() - shifted.gather(1, index).squeeze(1)).masked_fill_(mine.others, 0.0);
  loss_sum.add_(loss.sum(at::kDouble));
  tokens.add_(mine.others.logical_not().sum(at::kDouble));
  if (!scale.defined()) return;
  at::Tensor grad = shifted.exp().div_(sum.unsqueeze(1));
  grad.scatter_add_(1, index, mine.others.to(at::kFloat).sub_(1).unsqueeze(1));
  grad.mul_((targets.ge(0) * scale).unsqueeze(1));
  real.copy_(grad);
  logits.narrow(1, columns.size(), logits.size(1) - columns.size()).zero_();
}

}  // namespace sc
