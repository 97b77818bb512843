// Reads JSON files and keeps the place of every value. No torch.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/config/field.h"

namespace sc {

/// One scalar value of a JSON file.
struct JsonEntry {
  std::string path;       // keys joined by dots: {"model": {"layers": 4}} is "model.layers"
  Value value;            // as written in the file
  std::string key_where;  // "configs/tiny.json:3:5", 1-based; columns count characters
  std::string value_where;
};

/// All scalars of `text`, in their order. Messages call the file `name`.
///   Errors  InputError(usage) at name:line:col for anything but one JSON object of scalars and objects, for
///           a key given twice (in one object, or by two spellings of one path), and for a text out of bounds
///           (common/input/json_text.h; 64 KiB, paths of 200 bytes).
std::vector<JsonEntry> read_json(std::string_view text, const std::string& name);

/// Reads a configuration file; of one that is too large only so much that read_json() refuses it.
///   Errors  InputError(usage) at `asked_by` (such as "--workload x.json") if the file cannot be read.
std::string read_config_file(const std::string& path, const std::string& asked_by);

}  // namespace sc
