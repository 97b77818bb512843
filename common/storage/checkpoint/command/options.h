// The command line of `checkpoint`. No torch.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/types.h"
#include "common/storage/file_ops.h"

namespace sc::checkpoint {

struct Options {
  std::string command;  // show, verify, diff or export
  std::vector<Path> paths;
  DType dtype = DType::f32;  // for export
  bool replace = false;      // for export
  bool entries = false;      // for show
};

/// Parses the command line of `checkpoint`; nullopt if help was asked for.
///   Errors  InputError (exit 64).
std::optional<Options> parse_options(int argc, const char* const* argv);
std::string help_text();

}  // namespace sc::checkpoint
