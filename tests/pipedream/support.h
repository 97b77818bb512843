// Schedules and texts that several tests of pipedream share.
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

/// Generator options of every meaningful combination: all families, S and M from 1 to `most`, up to 3 chunks
/// where a family has them, 1 to 3 batches, all version rules of PipeDream, every warm-up of 1F1B.
std::vector<GenerateOptions> every_schedule(int most);

/// The options as a test prints them in a failure, e.g. "2bw S4 M8 v1 b3 stash k0".
std::string describe(const GenerateOptions& options);

/// A schedule written by hand, one text of actions for each stage.
Schedule written(const std::vector<std::string>& lists, int microbatches, int chunks = 1,
                 VersionRule rule = VersionRule::flush);

/// All violations of a report, one line each.
std::string violations(const CheckReport& report);

/// "<message> | <fix>" of the InputError that `body` throws; "nothing thrown" if it throws none.
std::string error_of(const std::function<void()>& body, ExitCode code = ExitCode::data);

}  // namespace sc::pipedream::test
