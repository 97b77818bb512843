// Thrown by an exercise until it is solved (lessons/*/exercise, tests/exercises.sh).
#pragma once

#include <stdexcept>

namespace sc {

class NotSolved : public std::logic_error {
 public:
  NotSolved() : std::logic_error("it still throws NotSolved") {}
};

}  // namespace sc
