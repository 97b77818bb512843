// Shared by the tests of pipedream.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "pipedream/check.h"
#include "pipedream/error.h"
#include "pipedream/formulas.h"
#include "pipedream/generate.h"
#include "pipedream/simulate.h"
#include "tests/support/answers.h"

namespace sc::pipedream::test {

using sc::test::expect_answers, sc::test::expect_in_answers, sc::test::expect_parts, sc::test::expect_texts,
    sc::test::expect_numbers;

/// Every combination with a meaning: all families, S and M from 1 to `most`, v <= 3 where there are chunks,
/// one to three batches, all version rules of PipeDream, every warmup of 1F1B.
std::vector<GenerateOptions> every_schedule(int most);

/// "2bw S4 M8 v1 b3 stash k0"
std::string describe(const GenerateOptions& options);

/// A schedule written by hand: one list of actions a stage.
Schedule written(const std::vector<std::string>& lists, int microbatches, int chunks = 1,
                 VersionRule rule = VersionRule::flush);

/// All violations, a line each.
std::string violations(const CheckReport& report);

/// The message and fix of the InputError that `body` throws; "nothing thrown" otherwise.
std::string error_of(const std::function<void()>& body, ExitCode code = ExitCode::data);

}  // namespace sc::pipedream::test
