#include "common/records/progress.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/support/answers.h"

namespace sc {
namespace {

struct Screen {
  std::ostringstream out;
  double now = 100;
  Progress progress;
  explicit Screen(const ProgressOptions& options)
      : progress(
            out, [this] { return now; }, options) {}
  void step(std::int64_t i, double seconds, double loss = 2.5, double waited = 0) {
    now += seconds;
    progress.step({.step = i, .loss = loss, .tokens = 3072, .seconds = seconds, .waited_seconds = waited});
  }
  /// All printed lines; with `most`, only the first `most` characters of each.
  [[nodiscard]] std::vector<std::string> lines(std::size_t most = std::string::npos) const {
    std::vector<std::string> all;
    std::istringstream in(out.str());
    for (std::string line; std::getline(in, line);) all.push_back(line.substr(0, most));
    return all;
  }
};

TEST(Progress, SaysStepLossRateWaitingAndTimeLeft) {
  Screen s({.total_steps = 200});
  s.step(0, 0.5, 5.54321, 0.125);
  EXPECT_EQ(s.out.str(), "step   1/200  loss 5.5432  6.1k tok/s  waiting 25 %  left 1 min 40 s\n");
}

TEST(Progress, SaysMfuWhereAPeakIsKnown) {
  const ModelFlops known{.parameters = 1, .a_token = 1e9, .gpus = 2, .peak = 1e13, .peak_of = "a GPU"};
  Screen s({.total_steps = 200, .flops = known});
  s.step(0, 0.5, 5.54321, 0.125);  // 6144 tokens a second
  EXPECT_EQ(s.out.str(), "step   1/200  loss 5.5432  6.1k tok/s  MFU 31 %  waiting 25 %  left 1 min 40 s\n");
  ModelFlops unknown = known;
  unknown.peak.reset();
  Screen without({.total_steps = 200, .flops = unknown});
  without.step(0, 0.5);
  EXPECT_EQ(without.out.str().find("MFU"), std::string::npos);
}

// Without a terminal, progress prints the first step, then a line for each 2 s, then the last step.
TEST(Progress, PrintsPlainLinesByTheClock) {
  Screen s({.total_steps = 10});
  for (int i = 0; i < 10; ++i) s.step(i, i < 9 ? 0.75 : 0.1);
  EXPECT_EQ(s.lines(10), (std::vector<std::string>{"step  1/10", "step  4/10", "step  7/10", "step 10/10"}));
}

TEST(Progress, ForgetsASlowStart) {
  Screen s({.total_steps = 100});
  s.step(0, 30);
  for (int i = 1; i <= 20; ++i) s.step(i, 1);
  test::expect_parts(s.lines().back(), {"3.1k tok/s", "left 1 min 19 s"});
}

TEST(Progress, CountsThousandsAndMillions) {
  Screen s({.total_steps = 3});
  s.step(0, 10);
  EXPECT_NE(s.out.str().find("  307 tok/s"), std::string::npos);
  Screen fast({.total_steps = 3});
  fast.step(0, 0.001);
  EXPECT_NE(fast.out.str().find("  3.07M tok/s"), std::string::npos);
}

TEST(Progress, RedrawsOneLineOnATerminal) {
  Screen s({.total_steps = 5, .terminal = true});
  for (int i = 0; i < 5; ++i) s.step(i, 0.2);
  s.progress.finish();
  s.progress.finish();
  const std::string text = s.out.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\r'), 5);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_EQ(text.back(), '\n');
}

TEST(Progress, RedrawsAtMostTenTimesASecondButAlwaysTheLastStep) {
  Screen s({.total_steps = 50, .terminal = true});
  for (int i = 0; i < 50; ++i) s.step(i, 0.03);
  const std::string text = s.out.str();
  const auto drawn = std::count(text.begin(), text.end(), '\r');
  EXPECT_GE(drawn, 12);
  EXPECT_LE(drawn, 16);
  EXPECT_NE(text.rfind("\rstep 50/50"), std::string::npos);
}

TEST(Progress, DrawsABarOnATerminalAndPlainLinesElsewhere) {
  Screen drawn({.total_steps = 4, .terminal = true, .bar = Look{}});
  drawn.step(0, 0.5);
  EXPECT_EQ(drawn.out.str(), "\r  1/4 [#####---------------] loss 2.50  6.1k tok/s  waiting 0 %  2 s left");
  Screen plain({.total_steps = 4, .bar = Look{}});
  plain.step(0, 0.5);
  EXPECT_EQ(plain.out.str(), "step 1/4  loss 2.5000  6.1k tok/s  waiting  0 %  left 2 s\n");
}

// The lines as a screen shows them: text after a carriage return overwrites the line from its beginning.
std::vector<std::string> shown(const std::string& text) {
  std::vector<std::string> screen(1);
  std::size_t column = 0;
  for (const char c : text) {
    if (c == '\r') {
      column = 0;
    } else if (c == '\n') {
      screen.emplace_back();
      column = 0;
    } else {
      std::string& line = screen.back();
      line.resize(std::max(line.size(), column + 1), ' ');
      line[column++] = c;
    }
  }
  for (std::string& line : screen) line.erase(line.find_last_not_of(' ') + 1);
  return screen;
}

TEST(Progress, LeavesNothingOfALongerLine) {
  Screen s({.total_steps = 1000, .terminal = true});
  s.step(0, 100);  // left 27 h 45 min
  s.step(998, 0.2);
  EXPECT_EQ(shown(s.out.str()).back().back(), 's');
}

TEST(Progress, NotesStandAboveTheRedrawnLine) {
  Screen s({.total_steps = 10, .terminal = true});
  s.step(0, 1);
  s.progress.note("validation loss 2.31");
  s.step(1, 1);
  const std::vector<std::string> screen = shown(s.out.str());
  ASSERT_EQ(screen.size(), 2U);
  EXPECT_EQ(screen[0], "validation loss 2.31");
  EXPECT_EQ(screen[1].substr(0, 10), "step  2/10");
}

TEST(Progress, NotesArePlainLinesElsewhere) {
  Screen s({.total_steps = 10});
  s.step(0, 1);
  s.progress.note("validation loss 2.31");
  EXPECT_EQ(s.lines().size(), 2U);
  EXPECT_EQ(s.lines()[1], "validation loss 2.31");
  EXPECT_EQ(s.out.str().find('\r'), std::string::npos);
}

TEST(Progress, QuietPrintsNotesAlone) {
  for (const bool terminal : {false, true}) {
    Screen s({.total_steps = 2, .quiet = true, .terminal = terminal});
    s.step(0, 1);
    s.progress.note("done");
    s.step(1, 1);
    s.progress.finish();
    EXPECT_EQ(s.out.str(), "done\n");
  }
}

// Steps shorter than the clock's resolution give no rate instead of an infinite one.
TEST(Progress, StepsWithoutTimeHaveNoRate) {
  Screen s({.total_steps = 2});
  s.step(0, 0);
  EXPECT_EQ(s.out.str(), "step 1/2  loss 2.5000\n");
}

}  // namespace
}  // namespace sc
