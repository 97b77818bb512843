#include "common/base/check.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/answers.h"

namespace sc {

enum class LibraryStatus { good, full };

template <>
struct StatusTraits<LibraryStatus> {
  static bool ok(LibraryStatus status) { return status == LibraryStatus::good; }
  static std::string text(LibraryStatus) { return "the queue is full"; }
};

namespace {

LibraryStatus library_call(LibraryStatus status) { return status; }

TEST(Check, GoodCallsPassAndBadOnesSayWhereAndWhy) {
  SC_CHECK(library_call(LibraryStatus::good));
  try {
    SC_CHECK(library_call(LibraryStatus::full));
    FAIL() << "nothing was thrown";
  } catch (const DeviceError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("check_test.cpp:"), std::string::npos) << message;
    EXPECT_NE(message.find(": library_call(LibraryStatus::full): the queue is full"), std::string::npos)
        << message;
  }
}

TEST(Check, TheCallRunsOnce) {
  int calls = 0;
  SC_CHECK((++calls, LibraryStatus::good));
  EXPECT_EQ(calls, 1);
}

TEST(InputError, KeepsItsParts) {
  const InputError error(ExitCode::data, "corpus.bin", "its magic is wrong", "make it again");
  EXPECT_EQ(static_cast<int>(error.code()), 65);
  EXPECT_EQ(error.where(), "corpus.bin");
  EXPECT_EQ(error.message(), "its magic is wrong");
  EXPECT_EQ(error.fix(), "make it again");
  EXPECT_STREQ(error.what(), "corpus.bin: its magic is wrong\n  fix: make it again");
  EXPECT_STREQ(InputError(ExitCode::usage, "a", "b", "").what(), "a: b");
}

TEST(ExitCode, IsSysexits) {
  test::expect_counts({{static_cast<int>(ExitCode::usage), 64},
                       {static_cast<int>(ExitCode::missing), 69},
                       {static_cast<int>(ExitCode::claim), 70},
                       {static_cast<int>(ExitCode::cannot_write), 73},
                       {static_cast<int>(ExitCode::lost_rank), 75}});
}

}  // namespace
}  // namespace sc
