#include "common/strategy/replica_hash.h"

#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "common/strategy/hash_word.h"
#include "tests/strategy/replica_hash_bytes.h"
#include "tests/support/answers.h"

namespace sc {
namespace {

// The hash by its definition, byte by byte.
std::int64_t by_definition(const at::Tensor& t) {
  const auto* bytes = static_cast<const unsigned char*>(t.const_data_ptr());
  std::vector<std::uint64_t> words((t.nbytes() + 7) / 8);
  for (std::size_t i = 0; i < t.nbytes(); ++i)
    words[i / 8] |= static_cast<std::uint64_t>(bytes[i]) << 8 * (i % 8);
  std::uint64_t sum = 0;
  for (std::size_t place = 0; place < words.size(); ++place) sum += hash_word(words[place], place);
  return static_cast<std::int64_t>(sum);
}

TEST(ReplicaHash, IsTheSumOfItsWordsMixedWithTheirPlaces) {
  for (const at::ScalarType type : test::kHashedTypes) {
    for (const std::int64_t n : test::kHashedSizes) {
      const at::Tensor t = test::any_bytes(n, type);
      EXPECT_EQ(replica_hash(t), by_definition(t)) << at::toString(type) << " " << n;
    }
  }
}

TEST(ReplicaHash, EveryByteAndItsPlaceCount) {
  const at::Tensor t = test::any_bytes(41, at::kByte);
  std::set<std::int64_t> hashes = {replica_hash(t)};
  for (std::int64_t i = 0; i < t.numel(); ++i) {
    test::flip(t, i);
    hashes.insert(replica_hash(t));
    test::flip(t, i);
  }
  EXPECT_EQ(hashes.size(), 42U);
  const at::Tensor words = at::tensor({1, 2}, at::kLong), swapped = at::tensor({2, 1}, at::kLong);
  EXPECT_NE(replica_hash(words), replica_hash(swapped));
}

TEST(ReplicaHash, NamesTheFirstRankThatDiffersFromRank0) {
  test::expect_counts({{first_different(at::tensor({7}, at::kLong)), -1},
                       {first_different(at::tensor({7, 7, 7}, at::kLong)), -1},
                       {first_different(at::tensor({7, 7, 8, 9}, at::kLong)), 2},
                       {first_different(at::tensor({8, 7, 7}, at::kLong)), 1}});
}

TEST(ReplicaHash, ComparedAfterEverySoManySteps) {
  for (const std::int64_t step : {2, 5, 8}) EXPECT_TRUE(verifies_after(step, 3));
  for (const std::int64_t step : {0, 1, 3, 4}) EXPECT_FALSE(verifies_after(step, 3));
  EXPECT_TRUE(verifies_after(0, 1));
  EXPECT_FALSE(verifies_after(0, 0));
}

}  // namespace
}  // namespace sc
