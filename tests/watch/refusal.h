// Catches the InputError with which a call refuses.
#pragma once

#include <gtest/gtest.h>

#include "common/base/check.h"

namespace sc::test {

/// The InputError that `call` throws; the test fails if it throws none.
template <class Call>
InputError refusal_of(const Call& call) {
  try {
    call();
  } catch (const InputError& error) {
    return error;
  }
  ADD_FAILURE() << "not refused";
  return {ExitCode::ok, "", "", ""};
}

}  // namespace sc::test
