// What the benchmarks of collectives, which mpirun starts, have in common.
#pragma once

#include <functional>
#include <iostream>
#include <string>

#include "common/base/check.h"
#include "common/watch/launch.h"

namespace sc::benchmark {

inline constexpr const char* kKinds[] = {"all_reduce", "reduce_scatter", "all_gather"};

/// How this rank was started.
///   Errors  InputError(usage) naming `program` if there are fewer than two ranks.
inline Launch launch_of_several(const std::string& program) {
  const Launch launch = detect_launch(process_environment());
  if (to_int(launch.world) < 2)
    throw InputError(ExitCode::usage, program, "needs at least two ranks",
                     "mpirun -n 2 --bind-to none " + program);
  return launch;
}

/// The exit code for main: body's, or that of its error, which is printed.
inline int reported(const std::function<int()>& body) {
  try {
    return body();
  } catch (const InputError& error) {
    std::cerr << "error: " << error.what() << '\n';
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}

}  // namespace sc::benchmark
