#include "common/base/handle.h"

#include <gtest/gtest.h>

#include <type_traits>
#include <utility>
#include <vector>

namespace sc {
namespace {

std::vector<int>& destroyed() {
  static std::vector<int> handles;
  return handles;
}
struct Destroy {
  void operator()(int handle) const noexcept { destroyed().push_back(handle); }
};
using Handle = UniqueHandle<int, Destroy>;

static_assert(!std::is_copy_constructible_v<Handle>);
static_assert(!std::is_copy_assignable_v<Handle>);
static_assert(std::is_nothrow_move_constructible_v<Handle>);
static_assert(std::is_nothrow_move_assignable_v<Handle>);

class HandleTest : public ::testing::Test {
 protected:
  void SetUp() override { destroyed().clear(); }
};

TEST_F(HandleTest, DestroysOnceAndNeverAnEmptyOne) {
  {
    const Handle full(7);
    const Handle empty;
    EXPECT_TRUE(full);
    EXPECT_FALSE(empty);
    EXPECT_EQ(full.get(), 7);
  }
  EXPECT_EQ(destroyed(), std::vector<int>{7});
}

TEST_F(HandleTest, MovingHandsOver) {
  {
    Handle a(1);
    Handle b(std::move(a));
    EXPECT_EQ(b.get(), 1);
    Handle c(2);
    c = std::move(b);
    EXPECT_EQ(destroyed(), std::vector<int>{2});
    EXPECT_EQ(c.get(), 1);
  }
  EXPECT_EQ(destroyed(), (std::vector<int>{2, 1}));
}

TEST_F(HandleTest, ReleaseGivesUpAndResetReplaces) {
  Handle a(1);
  EXPECT_EQ(a.release(), 1);
  EXPECT_FALSE(a);
  a.reset(3);
  a.reset(4);
  EXPECT_EQ(destroyed(), std::vector<int>{3});
  a.reset();
  EXPECT_EQ(destroyed(), (std::vector<int>{3, 4}));
}

TEST_F(HandleTest, AssigningToItselfKeepsTheHandle) {
  Handle a(5);
  Handle& same = a;
  a = std::move(same);
  EXPECT_EQ(a.get(), 5);
  EXPECT_TRUE(destroyed().empty());
}

}  // namespace
}  // namespace sc
