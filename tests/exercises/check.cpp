#include "tests/exercises/check.h"

#include <cstdio>

#include "common/base/not_solved.h"
#include "common/watch/deadline.h"

namespace sc::exercise {
namespace {

std::string indented(const std::string& lines) {
  std::string out;
  for (const char c : lines) out += c == '\n' ? std::string("\n  ") : std::string(1, c);
  return out;
}

int unsolved(const Exercise& exercise, const std::string& what) {
  std::printf("not solved yet: %s: %s\n  hint: %s\n", exercise.name.c_str(), indented(what).c_str(),
              exercise.hint.c_str());
  return 1;
}

}  // namespace

void require(bool holds, const std::string& what) {
  if (!holds) throw NotReached(what);
}

int judge(const Exercise& exercise) {
  const Deadline deadline(std::chrono::minutes(1),
                          exercise.name + ": not done after a minute\n  fix: look for a loop without an end");
  try {
    std::printf("solved: %s: %s\n", exercise.name.c_str(), exercise.check().c_str());
    return 0;
  } catch (const NotReached& missing) {
    return unsolved(exercise, missing.what());
  } catch (const NotSolved& untouched) {
    return unsolved(exercise, untouched.what());
  } catch (const std::exception& error) {
    return unsolved(exercise, std::string("an error ended it: ") + error.what());
  }
}

}  // namespace sc::exercise
