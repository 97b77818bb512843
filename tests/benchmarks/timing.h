// How long something takes, for the benchmarks that print it.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace sc::benchmark {

/// Seconds of each of `repeats` calls of `body`, sorted, after `warm_up` that do not count.
template <class Body>
std::vector<double> seconds_of(int repeats, int warm_up, const Body& body) {
  std::vector<double> seconds;
  for (int i = -warm_up; i < repeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    body();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (i >= 0) seconds.push_back(took.count());
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds;
}

inline double median(const std::vector<double>& sorted) { return sorted[sorted.size() / 2]; }

}  // namespace sc::benchmark
