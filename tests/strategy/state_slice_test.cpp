// Tests access to state by ranges: pieces, other dtypes, values outside of tensors.
#include "common/strategy/state_slice.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "common/memory/ledger.h"

namespace sc {
namespace {

TEST(StateSlice, ReadsAndWritesRangesOfTheUnit) {
  at::Tensor flat = at::arange(10, at::kFloat);
  const StateSlice slice{Purpose::master, 3, Segment::sharded, {100, 110}, in_tensor(flat)};
  at::Tensor into = at::empty({3}, at::kBFloat16);
  slice.read({104, 107}, into);
  EXPECT_TRUE(at::equal(into.to(at::kFloat), at::arange(4, 7, at::kFloat)));
  slice.write({108, 110}, at::full({2}, -1.0, at::kDouble));
  EXPECT_EQ(flat.const_data_ptr<float>()[7], 7.0F);
  EXPECT_EQ(flat.const_data_ptr<float>()[8], -1.0F);
  EXPECT_TRUE(at::equal(slice.copy(), flat));
  EXPECT_NE(slice.copy().const_data_ptr(), flat.const_data_ptr()) << "a copy";
}

TEST(StateSlice, PiecesCoverARangeOnce) {
  std::vector<Range> pieces;
  const Range range{5, 5 + 2 * kStatePiece + 1};
  for_each_piece(range, [&](Range piece) { pieces.push_back(piece); });
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[0], (Range{5, 5 + kStatePiece}));
  EXPECT_EQ(pieces[1].begin, pieces[0].end);
  EXPECT_EQ(pieces[2], (Range{5 + 2 * kStatePiece, range.end}));
  for_each_piece({7, 7}, [](Range) { ADD_FAILURE() << "nothing to do"; });
}

}  // namespace
}  // namespace sc
