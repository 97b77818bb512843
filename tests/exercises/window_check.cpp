#include <spdlog/fmt/fmt.h>

#include <array>
#include <cmath>

#include "tests/exercises/questions.h"
#include "tests/exercises/window.h"

namespace sc::exercise {
namespace {

constexpr std::int64_t kQuarter = 3'149'056;  // of a block's elements: pieces of a block are alike
constexpr std::array<WindowCase, 6> kQuestions = {{{1, kQuarter, 4000, 5000},
                                                   {3, kQuarter, 4000, 5000},
                                                   {3, kQuarter / 4, 4000, 5000},
                                                   {1, kQuarter, 24'000, 500},
                                                   {3, kQuarter, 24'000, 500},
                                                   {16, kQuarter, 24'000, 500}}};
constexpr double kTolerance = 0.01;

std::string to_text(const WindowCase& q) {
  return fmt::format("buffers={}, piece={}, disk {:g} MB/s, AdamW {:g} M params/s", q.buffers, q.piece,
                     q.disk_mbps, q.adam_mparams_per_second);
}

// What is wrong with one answer; empty if nothing is.
std::string answered(const JsonNode& given, const WindowCase& q, const char* key, double right) {
  if (given[key].value().is_null()) return fmt::format("{}: {} has no answer\n", to_text(q), key);
  const double off = given[key].number(0) / right - 1;
  if (std::abs(off) <= kTolerance) return "";
  return fmt::format("{}: {} is too {}\n", to_text(q), key, off > 0 ? "large" : "small");
}

std::string judged(const JsonNode& given, const WindowCase& q) {
  given.only({"buffers", "piece", "disk_mbps", "adam_mparams_per_second", "window_mb", "seconds"});
  const bool same = given["buffers"].integer() == q.buffers && given["piece"].integer() == q.piece &&
                    given["disk_mbps"].number() == q.disk_mbps &&
                    given["adam_mparams_per_second"].number() == q.adam_mparams_per_second;
  require(same, "leave the questions as they were; here was " + to_text(q));
  return answered(given, q, "window_mb", 1e-6 * static_cast<double>(window_bytes(q).value())) +
         answered(given, q, "seconds", seconds_per_update(q));
}

std::string check() {
  require_right_answers(kQuestions, judged);
  return fmt::format("all 12 answers are the plan's and the schedule's, within {:g} %", 100 * kTolerance);
}

}  // namespace

const Exercise kExercise{
    "window",
    "a buffer is 12 bytes per element of states, 2 of gradients and 2 of parameters; 24 bytes per "
    "parameter "
    "go over the disk; with one buffer reading, updating and writing take turns, with three the disk and "
    "AdamW work at the same time",
    check};

}  // namespace sc::exercise
