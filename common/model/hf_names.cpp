#include "common/model/hf_names.h"

namespace sc {

std::string hf_name(std::string_view name) {
  return name == kHfHead ? std::string(name) : kHfPrefix + std::string(name);
}

bool hf_transposed(std::string_view name, const std::vector<std::int64_t>& shape) {
  return shape.size() == 2 && name.starts_with("h.");
}

std::vector<std::int64_t> hf_shape(std::string_view name, const std::vector<std::int64_t>& shape,
                                   std::int64_t vocab) {
  if (hf_transposed(name, shape)) return {shape[1], shape[0]};
  if (shape.size() == 2 && (name == "wte.weight" || name == kHfHead)) return {vocab, shape[1]};
  return shape;
}

}  // namespace sc
