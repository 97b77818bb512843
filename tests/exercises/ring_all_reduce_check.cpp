#include <ATen/ops/empty.h>

#include <cmath>
#include <cstring>

#include "lessons/01_data_parallel/exercise/ring_all_reduce.h"
#include "tests/exercises/check.h"
#include "tests/exercises/world.h"

namespace sc::exercise {
namespace {

// Values of very different sizes, so that another order of summation gives other bits.
float value(std::int64_t rank, std::int64_t i) {
  return static_cast<float>(std::sin(static_cast<double>(7 * rank + 3 * i + 1)) *
                            std::pow(10.0, static_cast<double>((rank + i) % 7 - 3)));
}

at::Tensor start(std::int64_t rank, std::int64_t n) {
  at::Tensor t = at::empty({n}, at::kFloat);
  for (std::int64_t i = 0; i < n; ++i) t.mutable_data_ptr<float>()[i] = value(rank, i);
  return t;
}

/// The result on every rank: slice j is summed in the order of ranks j, j + 1, ...
at::Tensor expected(int ranks, std::int64_t n) {
  at::Tensor sum = at::empty({n}, at::kFloat);
  for (int j = 0; j < ranks; ++j) {
    const Slice slice = slice_of(Elements(n), Rank{j}, WorldSize{ranks});
    for (std::int64_t i = slice.begin; i < slice.end; ++i) {
      float x = value(j, i);
      for (int k = 1; k < ranks; ++k) x += value((j + k) % ranks, i);
      sum.mutable_data_ptr<float>()[i] = x;
    }
  }
  return sum;
}

std::string at_size(int ranks, std::int64_t n) {
  return std::to_string(ranks) + " ranks, " + std::to_string(n) + " elements: ";
}

void reduce_and_compare(World& world, std::int64_t n) {
  const at::Tensor sum = expected(world.size(), n);
  const std::vector<at::Tensor> result = world.each([&](RecordingCommunicator& comm) {
    at::Tensor t = start(to_int(comm.rank()), n);
    at::Tensor scratch = at::empty({slice_of(Elements(n), Rank{0}, comm.size()).size()}, at::kFloat);
    ring_all_reduce(comm, t, scratch);
    return t;
  });
  for (std::size_t r = 0; r < result.size(); ++r) {
    const auto *a = result[r].const_data_ptr<float>(), *b = sum.const_data_ptr<float>();
    for (std::int64_t i = 0; i < n; ++i)
      require(std::memcmp(a + i, b + i, sizeof(float)) == 0,
              at_size(world.size(), n) + "element " + std::to_string(i) + " on rank " + std::to_string(r) +
                  " is " + std::to_string(a[i]) + " instead of " + std::to_string(b[i]));
  }
}

void check_messages(const World& world, std::int64_t n) {
  const int ranks = world.size();
  std::int64_t elements = 0;
  for (int r = 0; r < ranks; ++r) {
    const std::string where = at_size(ranks, n) + "rank " + std::to_string(r) + " ";
    std::int64_t messages = 0;
    for (const auto& [op, count] : world.issued(r).count) {
      require(op.kind == CommKind::send || op.kind == CommKind::recv, where + "issued: " + describe(op));
      if (op.kind == CommKind::recv) continue;
      messages += count;
      elements += count * op.elements.value();
    }
    require(messages <= 2 * (ranks - 1), where + "sent " + std::to_string(messages) + " messages, at most " +
                                             std::to_string(2 * (ranks - 1)) + " are allowed");
    for (const int to : world.traffic(r).to)
      require(to == (r + 1) % ranks,
              where + "sent to rank " + std::to_string(to) + ", who is not its right neighbour");
    for (const int from : world.traffic(r).from)
      require(from == (r + ranks - 1) % ranks,
              where + "received from rank " + std::to_string(from) + ", who is not its left neighbour");
  }
  require(elements == 2 * (ranks - 1) * n, at_size(ranks, n) + "all ranks together sent " +
                                               std::to_string(elements) + " elements, " +
                                               std::to_string(2 * (ranks - 1) * n) + " are needed");
}

std::string check() {
  for (int ranks = 1; ranks <= 5; ++ranks)
    for (const std::int64_t n : {60, 61, 1000, 7, 1, 0}) {
      World world(ranks);
      reduce_and_compare(world, n);
      check_messages(world, n);
    }
  World delayed(3, true);  // whoever reads before wait() reads NaN
  reduce_and_compare(delayed, 100);
  return "1 to 5 ranks, 0 to 1000 elements: bit-equal to the stated order, at most 2 (N - 1) messages a "
         "rank, 2 (N - 1) n elements";
}

}  // namespace

const Exercise kExercise{"ring_all_reduce",
                         "in round s of the first half, rank r sends slice r - s and adds what arrives "
                         "to slice r - s - 1 (modulo "
                         "N); post the receive before you wait for the send",
                         check};

}  // namespace sc::exercise
