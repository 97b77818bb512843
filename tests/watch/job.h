// Starts and watches jobs of real processes.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <regex>
#include <string>
#include <thread>

#include "common/watch/process_alive.h"
#include "tests/support/command.h"

namespace sc::test {

/// Expects that all ranks of a job, which have printed "pid 123", are gone within `limit`: mpirun may return
/// a moment before its last child.
inline void expect_no_orphans(const Outcome& outcome, int ranks, std::chrono::seconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  const std::regex line("pid ([0-9]+)");
  int found = 0;
  for (std::sregex_iterator match(outcome.text.begin(), outcome.text.end(), line), none; match != none;
       ++match) {
    ++found;
    const std::int64_t pid = std::stoll((*match)[1]);
    while (process_alive(pid) && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(process_alive(pid)) << "rank with pid " << pid << " is left";
  }
  EXPECT_EQ(found, ranks) << outcome.text;
}

}  // namespace sc::test
