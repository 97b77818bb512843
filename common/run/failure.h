// An exception, as a run reports it.
#pragma once

#include <string>

#include "common/base/check.h"
#include "common/base/types.h"

namespace sc::detail {

struct Failure {
  ExitCode code;
  std::string text;
};

/// Of the exception that is being handled.
Failure current_failure(Rank rank);

}  // namespace sc::detail
