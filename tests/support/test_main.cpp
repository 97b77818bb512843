#include <gtest/gtest.h>

#include "tests/support/test_files.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  sc::test::keep_named_files(argc, argv);
  return RUN_ALL_TESTS();
}
