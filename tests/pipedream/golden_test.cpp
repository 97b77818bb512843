// Tests the order of compute actions against torch.distributed.pipelining, whose schedules
// golden/make_torch.py wrote to golden/torch_schedules.txt.
#include <fstream>
#include <map>
#include <sstream>

#include "pipedream/messages.h"
#include "tests/pipedream/support.h"

namespace sc::pipedream {
namespace {

struct Line {
  std::string name;
  GenerateOptions options;
  int stage = 0;
  std::string actions;
};

std::vector<Line> golden() {
  std::ifstream file("tests/pipedream/golden/torch_schedules.txt");
  std::vector<Line> lines;
  for (std::string text; std::getline(file, text);) {
    if (text.starts_with('#')) continue;
    std::istringstream words(text);
    Line line;
    char colon = 0;
    words >> line.name >> line.options.stages >> line.options.microbatches >> line.options.chunks >>
        line.stage >> colon;
    std::getline(words >> std::ws, line.actions);
    EXPECT_TRUE(
        family_from_name(line.name.substr(0, line.name.find("_listed")).substr(0, line.name.find("_run")),
                         line.options.family))
        << text;
    lines.push_back(line);
  }
  return lines;
}

std::string ours(const Line& line) {
  std::vector<Action> list =
      without_messages(generate(line.options)).actions[static_cast<std::size_t>(line.stage)];
  std::erase_if(list, [](const Action& a) { return !is_compute(a.kind); });
  return to_text(list);
}

// torch runs 1F1B in this generator's order, but _get_pipeline_order lists the last stage's forwards from 1
// instead of 0: only warm-up forwards set its counter, and the last stage has none.
std::string as_listed(const Line& line) {
  std::vector<Action> list;
  std::istringstream words(ours(line));
  for (std::string word; words >> word;) {
    list.push_back(parse_action(word, line.stage, "ours"));
    const bool shifted = line.stage + 1 == line.options.stages && list.back().kind == Kind::forward;
    if (shifted) ++list.back().microbatch;
  }
  return to_text(list);
}

TEST(Torch, OrdersActionsAlike) {
  std::map<std::string, int> compared;
  for (const Line& line : golden()) {
    const std::string expected = line.name == "1f1b_listed" ? as_listed(line) : ours(line);
    EXPECT_EQ(expected, line.actions)
        << line.name << ' ' << test::describe(line.options) << " stage " << line.stage;
    ++compared[line.name];
  }
  // The golden file has one line for each stage of each schedule: S <= 4 and M <= 8, M >= S for 1F1B, and for
  // the interleaved schedules M a multiple of the number of rounds.
  const std::map<std::string, int> all = {{"1f1b_listed", 60}, {"1f1b_run", 60},     {"gpipe_listed", 80},
                                          {"gpipe_run", 80},   {"interleaved", 219}, {"zb_h1", 219}};
  EXPECT_EQ(compared, all);
}

}  // namespace
}  // namespace sc::pipedream
