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
  std::vector<std::string> set;  // as given
  bool check = false, json = false;
  bool other_machine =
      false;  // --memory or --link without --gpu: no GPU of the table, and its rates are taken
};

/// Nothing if help was asked for.
///   Errors  InputError 64.
std::optional<Options> parse_options(int argc, const char* const* argv);
std::string help_text();

}  // namespace sc::choose
