#include <cstdio>

#include "common/base/not_solved.h"
#include "common/watch/deadline.h"
#include "tests/exercises/check.h"

namespace sc::exercise {
namespace {

int unsolved(const std::string& what) {
  std::string indented;
  for (const char c : what) indented += c == '\n' ? std::string("\n  ") : std::string(1, c);
  std::printf("not solved yet: %s: %s\n  hint: %s\n", kExercise.name, indented.c_str(), kExercise.hint);
  return 1;
}

int judge() {
  const Deadline deadline(std::chrono::minutes(1),
                          kExercise.name + std::string(": not done after a minute\n"
                                                       "  fix: look for a loop without an end"));
  try {
    std::printf("solved: %s: %s\n", kExercise.name, kExercise.check().c_str());
    return 0;
  } catch (const NotReached& missing) {
    return unsolved(missing.what());
  } catch (const NotSolved& untouched) {
    return unsolved(untouched.what());
  } catch (const std::exception& error) {
    return unsolved(std::string("an error ended it: ") + error.what());
  }
}

}  // namespace
}  // namespace sc::exercise

int main() { return sc::exercise::judge(); }
