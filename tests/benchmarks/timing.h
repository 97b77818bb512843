// Measures how long something takes, for the benchmarks that print it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <vector>

namespace sc::benchmark {

/// The seconds of each of `repeats` calls of `body`, sorted, after `warm_up` calls that do not count.
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

/// The value below which the share `q` of the values lies: 0.5 gives the median.
inline double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(std::lround(q * static_cast<double>(values.size() - 1)))];
}

}  // namespace sc::benchmark
