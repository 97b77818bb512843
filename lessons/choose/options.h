// The command line of `choose`. No torch.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/config/workload.h"
#include "machine.h"

namespace sc::choose {

struct Options {
  Machine machine;
  Workload workload;
  std::string workload_file = "configs/gpt2_355m.json";
  std::vector<std::string> set;  // the arguments of --set
  bool check = false, json = false;
  // Whether --memory or --link came without --gpu: a GPU that is not in the table, with an H200's rates.
  bool other_machine = false;
};

/// Parses the command line of `choose`; nullopt if help was asked for.
///   Errors  InputError 64.
std::optional<Options> parse_options(int argc, const char* const* argv);
std::string help_text();

}  // namespace sc::choose
