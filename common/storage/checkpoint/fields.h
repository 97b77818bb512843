// Strict reading of JSON: a key that is missing or of the wrong type is an error that names it. Internal to
// checkpoints; no torch.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "common/input/json_node.h"
#include "common/storage/checkpoint/manifest.h"

namespace sc::checkpoint {

/// JSON that keeps the order of its keys when written.
using OrderedJson = nlohmann::ordered_json;

/// What `of` makes of a manifest's text, or of a part of it, within the bounds of a manifest.
///   Errors  InputError (exit 65) naming `where`.
template <class Of>
auto of_manifest(std::string_view text, const std::string& where, const Of& of) {
  // These bounds are enough for 48,000 tensors; GPT-2 with 1558M parameters has 580.
  constexpr JsonLimits kLimits{.bytes = kMostManifestBytes, .memory = std::size_t{24} << 20U};
  return of_json<InputError>(text, kLimits, where, ExitCode::data,
                             "the file is damaged or another program's: use another checkpoint", of);
}

std::vector<std::uint64_t> sums_of(const JsonNode& node);
std::uint64_t sum_of(const JsonNode& node);
OrderedJson json_of(const FileSums& sums);
FileSums file_sums_of(const JsonNode& node);

}  // namespace sc::checkpoint
