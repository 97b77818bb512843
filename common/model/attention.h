// Where tokens meet, between the two matrices of a block's first half: a seam for those who have only some of
// a row's tokens.
#pragma once

#include "common/model/block_buffers.h"

namespace sc {

class Attention {
 public:
  virtual ~Attention() = default;
  /// From saved.qkv to saved.att and lse.
  virtual void forward(int unit, BlockSaved& saved) = 0;
  /// Before the backward of the block's second half: what other ranks need for backward can leave.
  virtual void begin_backward(int /*unit*/, const BlockSaved& /*saved*/) {}
  /// From left.att to left.qkv.
  virtual void backward(int unit, const BlockSaved& saved, BlockGrads& left) = 0;
};

}  // namespace sc
