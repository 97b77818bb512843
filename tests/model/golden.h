// The models that Hugging Face's packages wrote (golden/make_golden.py).
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstring>
#include <string_view>

#include "common/config/workload.h"
#include "common/memory/ledger.h"
#include "common/storage/safetensors.h"

namespace sc::test {

inline const Path kGolden = "tests/model/golden";

inline GptConfig golden_config(bool tied) {
  return {.layers = 3, .heads = 4, .width = 32, .context = 32, .vocab = 97, .tied = tied};
}

inline at::Tensor read(const SafetensorsReader& file, std::string_view name) {
  const SafeTensor& t = file.at(name);
  const at::Tensor out = at::empty(t.shape, to_aten(*t.dtype));
  std::memcpy(out.mutable_data_ptr(), file.bytes(t).data(), file.bytes(t).size());
  return out;
}

}  // namespace sc::test
