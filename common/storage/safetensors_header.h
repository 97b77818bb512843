// The JSON inside a safetensors file: parsing with every rule of the format, and writing. Internal to
// storage; no torch.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/storage/safetensors.h"

namespace sc {

struct SafetensorsHeader {
  std::vector<SafeTensor> tensors;  // by ascending begin
  std::map<std::string, std::string> metadata;
};

/// Parses a header. `json` is its text, `data_bytes` the number of bytes after it in the file.
///   Errors  InputError (exit 65) with `path`.
SafetensorsHeader parse_safetensors_header(std::string_view json, std::int64_t data_bytes, const Path& path);

/// The beginning of a file with these tensors: 8 bytes of length, and JSON padded to a multiple of 8.
std::string safetensors_head(const std::vector<SafeTensorSpec>& specs,
                             const std::map<std::string, std::string>& metadata);

/// The number of elements of a shape; -1 if it does not fit into 64 bits.
std::int64_t shape_numel(const std::vector<std::int64_t>& shape);

}  // namespace sc
