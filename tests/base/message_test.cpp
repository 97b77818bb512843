#include "common/base/message.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace sc {
namespace {

// A packet-mode pipe returns exactly what one write(2) put in.
TEST(Message, IsOneWrite) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_DIRECT), 0);
  const int before = ::dup(STDERR_FILENO);
  ::dup2(ends[1], STDERR_FILENO);
  say_error("here: it is wrong\n  fix: mend it");
  ::dup2(before, STDERR_FILENO);
  ::close(before), ::close(ends[1]);
  char text[256];
  const ssize_t first = ::read(ends[0], text, sizeof text);
  EXPECT_EQ(std::string(text, static_cast<std::size_t>(std::max<ssize_t>(0, first))),
            "error: here: it is wrong\n  fix: mend it\n");
  EXPECT_EQ(::read(ends[0], text, sizeof text), 0);
  ::close(ends[0]);
}

}  // namespace
}  // namespace sc
