// Exercise of lesson 10; what is asked for stands in loss_in_parts.cpp.
#pragma once

#include "common/comm/communicator.h"

namespace sc {

/// What one rank has of the head: logits of all n rows for its own run of the vocabulary.
struct VocabPart {
  at::Tensor logits;         // [n, v] fp32; v is the same on every rank
  std::int64_t columns = 0;  // so many columns are tokens, perhaps none; padding behind them holds anything
  std::int64_t first = 0;    // column c is token first + c
};

/// Of the targets that one rank counts.
struct LossPart {
  double sum = 0;  // in nats
  std::int64_t tokens = 0;
};

LossPart loss_in_parts(VocabPart& part, const at::Tensor& targets, double scale, Communicator& comm);

}  // namespace sc
