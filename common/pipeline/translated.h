// Translates pipedream's errors, since pipedream does not depend on this project.
#pragma once

#include <string>

#include "common/base/check.h"
#include "pipedream/error.h"

namespace sc {

/// Calls f() and turns pipedream's errors into InputErrors at `key`.
template <class F>
auto translated(const std::string& key, const F& f) {
  try {
    return f();
  } catch (const pipedream::InputError& error) {
    throw InputError(static_cast<ExitCode>(error.code()), key, error.what(), error.fix());
  }
}

}  // namespace sc
