// Tests --inject: accepted faults, refused ones with their messages, and that a fault acts only when it is
// due.
#include "common/watch/fault.h"

#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <stdexcept>

#include "tests/watch/refusal.h"

namespace sc {
namespace {

TEST(Fault, Parses) {
  const Fault fault = Fault::parse("hang@1,7", WorldSize{3});
  EXPECT_EQ(fault.kind(), Fault::Kind::hang);
  EXPECT_EQ(to_int(fault.rank()), 1);
  EXPECT_EQ(fault.step(), 7);
  EXPECT_EQ(Fault::parse("kill@0,0", WorldSize{1}).kind(), Fault::Kind::kill);
  EXPECT_EQ(Fault::parse("throw@2,12", WorldSize{3}).kind(), Fault::Kind::throw_error);
  EXPECT_EQ(Fault::parse("nan@2,12", WorldSize{3}).kind(), Fault::Kind::nan);
}

TEST(Fault, RefusesEverythingElse) {
  const std::string form = "write kind@rank,step, for example hang@1,7";
  const std::array<std::string, 3> refused[] = {
      {"", "there is no @", form},
      {"hang", "there is no @", form},
      {"hang@1", "there is no comma between rank and step", form},
      {"hung@1,7", "there is no fault \"hung\"", "did you mean hang?"},
      {"explode@1,7", "there is no fault \"explode\"", "one of hang, kill, throw, nan"},
      {"@1,7", "there is no fault \"\"", "one of hang, kill, throw, nan"},
      {"hang@x,7", "the rank \"x\" is not a whole number", form},
      {"hang@,7", "the rank \"\" is not a whole number", form},
      {"hang@1,7.5", "the step \"7.5\" is not a whole number", form},
      {"hang@1,7,8", "the step \"7,8\" is not a whole number", form},
      {"hang@3,7", "rank 3 is not in a world of 3", "ranks are 0 to 2"},
      {"hang@-1,7", "rank -1 is not in a world of 3", "ranks are 0 to 2"},
      {"hang@1,-1", "step -1 never comes", "steps count from 0"}};
  for (const auto& [text, what, fix] : refused) {
    const InputError error = test::refusal_of([&text = text] { (void)Fault::parse(text, WorldSize{3}); });
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_EQ(error.where(), "--inject " + text);
    EXPECT_EQ(error.message(), what);
    EXPECT_EQ(error.fix(), fix);
  }
}

TEST(Fault, HappensAtItsRankAndStepOnly) {
  const Fault fault = Fault::parse("throw@1,2", WorldSize{3});
  fault.at_step(Rank{0}, 2);
  fault.at_step(Rank{1}, 1);
  try {
    fault.at_step(Rank{1}, 2);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "injected error: rank 1, step 2");
  }
  EXPECT_FALSE(fault.nan_at(Rank{1}, 2));
  const Fault nan = Fault::parse("nan@1,2", WorldSize{3});
  nan.at_step(Rank{1}, 2);
  EXPECT_TRUE(nan.nan_at(Rank{1}, 2));
  EXPECT_FALSE(nan.nan_at(Rank{1}, 3));
  EXPECT_FALSE(nan.nan_at(Rank{0}, 2));
  Fault().at_step(Rank{0}, 0);
}

TEST(Fault, Kills) {
  EXPECT_EXIT(Fault::parse("kill@0,3", WorldSize{1}).at_step(Rank{0}, 3), ::testing::KilledBySignal(SIGKILL),
              "");
}

}  // namespace
}  // namespace sc
