// The models that Hugging Face's packages wrote (golden/make_golden.py).
#pragma once

#include "common/config/workload.h"
#include "common/storage/file_ops.h"

namespace sc::test {

inline const Path kGolden = "tests/model/golden";

inline GptConfig golden_config(bool tied) {
  return {.layers = 3, .heads = 4, .width = 32, .context = 32, .vocab = 97, .tied = tied};
}

}  // namespace sc::test
