#include "tests/comm/mpi_test_main.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <exception>

#include "tests/support/test_files.h"

namespace sc::test {
namespace {

MpiWorld* the_mpi = nullptr;
Communicator* the_world = nullptr;
std::int64_t scratch_bytes = 0;

// Every rank runs every test. A rank whose test failed still meets the others at the end; one that threw ends
// the job.
int run_all(int argc, char** argv) {
  MpiWorld mpi([](Bytes bytes) {
    scratch_bytes += bytes.value();
    return at::empty({bytes.value()}, at::kByte);
  });
  if (mpi.rank() != Rank{0}) ::testing::GTEST_FLAG(brief) = true;  // their failures only
  ::testing::InitGoogleTest(&argc, argv);
  keep_named_files(argc, argv);
  const auto world = mpi.world();
  the_mpi = &mpi;
  the_world = world.get();
  const int result = RUN_ALL_TESTS();
  world->barrier();
  return result;
}

}  // namespace

MpiWorld& mpi() { return *the_mpi; }
Communicator& mpi_world() { return *the_world; }
std::int64_t mpi_scratch_bytes() { return scratch_bytes; }

}  // namespace sc::test

int main(int argc, char** argv) {
  try {
    return sc::test::run_all(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
