#include <ATen/ops/full.h>

#include "lessons/01_data_parallel/exercise/deadlock.h"
#include "tests/exercises/check.h"
#include "tests/exercises/world.h"

namespace sc::exercise {
namespace {

void pass_and_compare(World& world, std::int64_t n) {
  const int ranks = world.size();
  world.run([&](RecordingCommunicator& comm) {
    const int me = static_cast<int>(comm.rank()), left = (me + ranks - 1) % ranks;
    const at::Tensor mine = at::full({n}, me + 1, at::kFloat);
    at::Tensor theirs = at::full({n}, -1, at::kFloat);
    pass_right(comm, mine, theirs);
    const std::string where =
        std::to_string(ranks) + " ranks, " + std::to_string(n) + " elements: rank " + std::to_string(me);
    for (std::int64_t i = 0; i < n; ++i) {
      require(theirs.const_data_ptr<float>()[i] == static_cast<float>(left + 1),
              where + " does not hold what rank " + std::to_string(left) + " sent");
      require(mine.const_data_ptr<float>()[i] == static_cast<float>(me + 1),
              where + " overwrote what it sends");
    }
  });
}

std::string check() {
  for (const int ranks : {2, 3, 4, 5})
    for (const std::int64_t n : {1, 100'000}) {
      World world(ranks);
      pass_and_compare(world, n);
      CommPlan plan;
      plan.add({CommKind::send, DType::f32, Elements(n), WorldSize{ranks}});
      plan.add({CommKind::recv, DType::f32, Elements(n), WorldSize{ranks}});
      for (int r = 0; r < ranks; ++r)
        require(world.issued(r) == plan, std::to_string(ranks) + " ranks: one message of " +
                                             std::to_string(n) + " elements a rank is enough");
    }
  World delayed(3, true);
  pass_and_compare(delayed, 100);
  return "2 to 5 ranks, 1 and 100000 elements: nobody hangs, one message a rank";
}

}  // namespace

const Exercise kExercise{"deadlock",
                         "issue both before you wait for either, or let odd ranks receive before they "
                         "send; the watchdog of a real run "
                         "says the same: 01_data_parallel --help, --watchdog",
                         check};

}  // namespace sc::exercise
