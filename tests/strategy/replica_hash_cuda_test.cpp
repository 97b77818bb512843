// Tests that a GPU's replica hash equals the CPU's for any size and dtype, and changes with every bit.
#include <set>
#include <string>

#include "common/strategy/replica_hash.h"
#include "tests/strategy/replica_hash_bytes.h"
#include "tests/support/gpu.h"

namespace sc {
namespace {

using ReplicaHashCudaTest = test::GpuTest;

TEST_F(ReplicaHashCudaTest, EqualsTheCpus) {
  for (const at::ScalarType type : test::kHashedTypes) {
    for (const std::int64_t n : test::kHashedSizes) {
      const at::Tensor host = test::any_bytes(n, type), device = host.to(at::kCUDA);
      EXPECT_EQ(replica_hash(device), replica_hash(host)) << at::toString(type) << " " << n;
    }
  }
}

// In one turn, 1024 blocks of 256 threads hash a word of 8 bytes each; these sizes need up to four turns, and
// some end inside a word.
TEST_F(ReplicaHashCudaTest, EqualsTheCpusWhereThreadsTakeSeveralWords) {
  constexpr std::int64_t kOneTurn = std::int64_t{8} * 1024 * 256;
  for (const std::int64_t n : {kOneTurn - 1, kOneTurn, 3 * kOneTurn + 8 * 77 + 3}) {
    const at::Tensor host = test::any_bytes(n, at::kByte), device = host.to(at::kCUDA);
    EXPECT_EQ(replica_hash(device), replica_hash(host)) << n;
  }
}

// A hash of a part that begins at a word ignores the bytes before and after the part.
TEST_F(ReplicaHashCudaTest, OfAPart) {
  const at::Tensor host = test::any_bytes(1000, at::kByte), device = host.to(at::kCUDA);
  const std::int64_t hash = replica_hash(device.narrow(0, 16, 501));
  EXPECT_EQ(hash, replica_hash(host.narrow(0, 16, 501)));
  test::flip(device, 15);
  test::flip(device, 517);
  EXPECT_EQ(replica_hash(device.narrow(0, 16, 501)), hash);
}

TEST_F(ReplicaHashCudaTest, AllocatesNothingAfterTheFirst) {
  const at::Tensor t = test::any_bytes(1023, at::kHalf).to(at::kCUDA);
  (void)replica_hash(t);
  const std::int64_t before = test::allocations();
  (void)replica_hash(t);
  EXPECT_EQ(test::allocations(), before);
}

TEST_F(ReplicaHashCudaTest, OneFlippedBitChangesIt) {
  for (const at::ScalarType type : test::kHashedTypes) {
    const at::Tensor device = test::any_bytes(1023, type).to(at::kCUDA);
    const std::int64_t before = replica_hash(device), size = static_cast<std::int64_t>(device.nbytes());
    std::set<std::int64_t> hashes = {before};
    for (const std::int64_t at : {std::int64_t{0}, std::int64_t{7}, size / 2, size - 1}) {
      test::flip(device, at);
      hashes.insert(replica_hash(device));
      test::flip(device, at);
    }
    EXPECT_EQ(hashes.size(), 5U) << at::toString(type);
    EXPECT_EQ(replica_hash(device), before);
  }
}

}  // namespace
}  // namespace sc
