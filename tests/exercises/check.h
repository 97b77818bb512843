// What the checkers of exercises share: one verdict, printed in the same form.
#pragma once

#include <stdexcept>
#include <string>

namespace sc::exercise {

/// The difference that remains between the learner's code and the target. Lines after the first are indented
/// when printed.
class NotReached : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
/// Throws NotReached(what) unless `holds`.
void require(bool holds, const std::string& what);

struct Exercise {
  const char *name, *hint;
  std::string (*check)();  // returns what was measured
};
/// The exercise that a checker defines. main() prints "solved: ..." or "not solved yet: ..." with the hint.
///   Exits  0 solved; 1 not; 75 after a minute: code that runs for ever.
extern const Exercise kExercise;

/// The path of the file with the answer, from the repository's root, if a learner edits a file
/// (edited_file.cpp).
std::string edited_file();

}  // namespace sc::exercise
