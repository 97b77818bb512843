// The requirements for every communicator, as functions that run on each rank of a world. The same list runs
// on every backend.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "common/comm/communicator.h"

namespace sc::test {

/// A test that runs on every rank at once. It uses EXPECT_ only, so that a failing rank never leaves others
/// waiting.
struct Case {
  std::string name;
  std::function<void(Communicator&)> body;
};
const std::vector<Case>& conformance_cases();
/// The parameter values of suites that run every case.
inline const auto kEveryCase = ::testing::Range<std::size_t>(0, conformance_cases().size());
inline std::string name_of_case(const ::testing::TestParamInfo<std::size_t>& info) {
  return conformance_cases()[info.param].name;
}

/// Runs `body` on the ranks of a Local world, one thread per rank, after putting `wrap` round each
/// communicator. An exception on a rank aborts the others and is a test failure, unless the abort itself
/// caused it.
using Wrap = std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>)>;
void run_local(int world, const std::function<void(Communicator&)>& body, const Wrap& wrap = {});

}  // namespace sc::test
