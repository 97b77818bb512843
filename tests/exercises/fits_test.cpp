// Tests that lesson 05's exercise can be solved in one way, and only by offloading.
#include "tests/exercises/fits.h"

#include <gtest/gtest.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>

#include "common/config/resolve.h"
#include "lessons/plans.h"
#include "tests/exercises/check.h"
#include "tests/support/answers.h"

namespace sc::exercise {
namespace {

// The keys that may change; the defaults are the solution.
struct Keys {
  std::string parameters = "sharded", update = "exact";
  int prefetch = 1, micro = 24;
  std::string activations = "recompute", grad_dtype = "same";
  [[nodiscard]] std::string json() const {
    return fmt::format(R"({{"parameters": "{}", "update": "{}", "prefetch": {}, "batch": {{"micro": {}}},
 "activations": "{}", "precision": {{"grad_dtype": "{}"}}}})",
                       parameters, update, prefetch, micro, activations, grad_dtype);
  }
};

// A rank has 48 rows in a step; these sizes of a micro-batch divide them.
constexpr std::array<int, 10> kMicro = {1, 2, 3, 4, 6, 8, 12, 16, 24, 48};

template <class V>
void vary(std::vector<Keys>& all, V Keys::*key, const std::vector<V>& values) {
  std::vector<Keys> more;
  for (const Keys& one : all)
    for (const V& value : values) more.emplace_back(one).*key = value;
  all = more;
}

std::vector<Keys> all_keys() {
  std::vector<Keys> all = {{}};
  vary<std::string>(all, &Keys::parameters, {"whole", "sharded"});
  vary<std::string>(all, &Keys::update, {"exact", "delayed"});
  vary<int>(all, &Keys::prefetch, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
  vary<int>(all, &Keys::micro, {kMicro.begin(), kMicro.end()});
  vary<std::string>(all, &Keys::activations, {"keep", "recompute_gelu", "recompute"});
  vary<std::string>(all, &Keys::grad_dtype, {"same", "fp32"});
  return all;
}

// The limits that are missed, one per line with the purposes below it.
std::string missed(const Keys& keys) {
  return fmt::format("{}", fmt::join(missed_limits(read_answer(keys.json(), "f.json")), "\n"));
}

std::string refusal(const std::string& json) {
  try {
    read_answer(json, "f.json");
  } catch (const NotReached& error) {
    return error.what();
  }
  return "nothing";
}

TEST(Fits, InOneWayOfAll) {
  const std::vector<Keys> all = all_keys();
  EXPECT_EQ(all.size(), 4080U);
  for (const Keys& keys : all)
    EXPECT_EQ(missed(keys).empty(), keys.json() == Keys().json()) << keys.json() << "\n" << missed(keys);
}

// Every key matters: changing one alone misses a limit, by the amount given.
TEST(Fits, EveryNeighbourMissesALimit) {
  const std::string gpu = "a rank holds on its GPU ", host = "4 ranks hold on the host ";
  const std::string fp32 = missed({.grad_dtype = "fp32"});
  test::expect_texts(
      {{missed({}), ""},
       {missed({.parameters = "whole"}), gpu + "30.66 GB of 22.00 GB: 8.66 GB too many\n..."},
       {missed({.update = "delayed"}), host + "119.80 GB of 112.00 GB: 7.80 GB too many\n..."},
       {missed({.prefetch = 2}), gpu + "22.31 GB of 22.00 GB: 312.12 MB too many\n..."},
       {missed({.prefetch = 0}), "prefetch is 0; at least 1 is asked for"},
       {missed({.micro = 48}), gpu + "30.36 GB of 22.00 GB: 8.36 GB too many\n..."},
       {missed({.micro = 16}), "batch.micro is 16; at least 24 rows are asked for"},
       {missed({.activations = "recompute_gelu"}), gpu + "90.67 GB of 22.00 GB: 68.67 GB too many\n..."},
       {fp32, gpu + "26.77 GB of 22.00 GB: 4.77 GB too many\n..."}});
  test::expect_parts(fp32, {host + "119.80 GB of 112.00 GB"});
}

TEST(Fits, SaysWhatTakesTheRoom) {
  const std::string text = missed({.update = "delayed"});
  EXPECT_EQ(
      text.substr(text.find('\n')),
      "\n  gradients 26.62 GB, master 26.62 GB, momentum 26.62 GB, variance 26.62 GB, parameters 13.31 GB");
}

Bytes least_bytes(const StrategyPlans& lesson) {
  Workload workload = load_workload(kFitsWorkload);
  workload.activations = Activations::recompute;
  std::vector<Bytes> held;
  for (const int micro : kMicro) {
    workload.batch.micro = micro;
    held.push_back(device_bytes(lesson, workload));
  }
  return *std::min_element(held.begin(), held.end());
}

// The bytes of the lessons without offloading are those of lesson 05's README, all beyond 24 GB.
TEST(Fits, NotWithoutOffloading) {
  std::string least;
  for (const StrategyPlans& lesson : lesson_plans()) {
    if (lesson.folder < "01" || lesson.folder > "05") continue;
    const auto bytes = static_cast<double>(least_bytes(lesson).value());
    least += fmt::format("{} {:.1f}, ", lesson.folder.substr(0, 2), bytes / 1e9);
  }
  EXPECT_EQ(least, "01 107.1, 02 47.2, 03 38.7, 04 30.0, ");
}

TEST(Fits, AnythingElseIsRefused) {
  test::expect_answers(
      refusal, {{R"({"batch": {"micro": 24, "global": 96}})",
                 "f.json:1:25: \"batch.global\" is given; what may change is parameters, update, ..."},
                {R"({"model": {"layers": 2}})", "f.json:1:12: \"model.layers\" is given..."},
                {R"({"update": "late"})", "f.json:1:12: ..."},
                {R"({"batch": {"micro": 32}})",
                 "f.json:1:21: batch.micro 32 does not divide the 48 rows that a rank has in a step..."},
                {R"({"batch": {"micro": 0}})", "f.json:1:21: ..."},
                {"{", "f.json:1:..."}});
}

}  // namespace
}  // namespace sc::exercise
