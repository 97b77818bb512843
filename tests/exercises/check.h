// What the checkers of exercises share: one verdict, said in the same form.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>

namespace sc::exercise {

/// What still separates the learner's code from the target. Lines after the first are indented when printed.
class NotReached : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
/// Throws NotReached(what) unless `holds`.
void require(bool holds, const std::string& what);

struct Exercise {
  std::string name, hint;
  std::function<std::string()> check;  // returns what was measured
};

/// main() of a checker: prints "solved: ..." or "not solved yet: ..." with the hint.
///   Exits  0 solved; 1 not; 75 after a minute: code that runs for ever.
int judge(const Exercise& exercise);

/// The file with the answer, from the repository's root. Only where a file is what a learner edits
/// (edited_file.cpp).
std::string edited_file();

}  // namespace sc::exercise
