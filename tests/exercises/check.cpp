#include "tests/exercises/check.h"

namespace sc::exercise {

void require(bool holds, const std::string& what) {
  if (!holds) throw NotReached(what);
}

}  // namespace sc::exercise
