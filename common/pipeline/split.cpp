#include "common/pipeline/split.h"

#include <spdlog/fmt/fmt.h>

#include <numeric>
#include <sstream>
#include <utility>

#include "common/base/check.h"
#include "common/pipeline/translated.h"
#include "pipedream/cost_files.h"
#include "pipedream/error.h"
#include "pipedream/partition.h"

namespace sc {
namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& fix) {
  throw InputError(ExitCode::usage, "split", what, fix);
}

// A profile by operations. Embedding and head count for their neighbours, so every position has a block.
pipedream::Profile profile_of(const Workload& w) {
  const auto d = static_cast<double>(w.model.width), T = static_cast<double>(w.batch.sequence);
  pipedream::Profile profile;
  for (std::int64_t block = 0; block < w.model.layers; ++block)
    profile.layers.push_back({.name = "block", .forward = 24 * d * d + 2 * T * d});
  profile.layers.back().forward += 2 * static_cast<double>(w.model.vocab_padded()) * d;
  return profile;
}

// A measured profile. What precedes a block, and what follows the last one, counts for that block.
pipedream::Profile measured_profile(const Workload& w, const std::string& path) {
  const pipedream::Profile read = pipedream::read_profile(path);
  pipedream::Profile profile;
  pipedream::Layer before;
  for (const pipedream::Layer& layer : read.layers) {
    if (!layer.block && profile.layers.empty()) {
      before.forward += layer.forward, before.backward += layer.backward;
      continue;
    }
    if (layer.block) profile.layers.push_back({.name = layer.name});
    profile.layers.back().forward += layer.forward + std::exchange(before.forward, 0);
    profile.layers.back().backward += layer.backward + std::exchange(before.backward, 0);
  }
  if (static_cast<std::int64_t>(profile.layers.size()) == w.model.layers) return profile;
  throw InputError(ExitCode::usage, "profile_in",
                   fmt::format("{} is a profile of {} blocks; this model has {}", path, profile.layers.size(),
                               w.model.layers),
                   "the profile of this model, or leave it out: operations are counted then");
}

std::vector<int> numbers_in(const std::string& split) {
  std::vector<int> numbers;
  std::istringstream in(split);
  for (std::string word; std::getline(in, word, ',');) {
    if (word.empty() || word.size() > 4 || word.find_first_not_of("0123456789") != std::string::npos ||
        word == "0")
      refuse(fmt::format("\"{}\" is no number of blocks", word),
             "balanced, uniform, or numbers like 7,7,7,3");
    numbers.push_back(std::stoi(word));
  }
  return numbers;
}

std::vector<int> balanced(const Workload& workload, int positions, const std::string& profile_in) {
  std::vector<int> blocks;
  const pipedream::Profile profile =
      profile_in == "none" ? profile_of(workload)
                           : translated("profile_in", [&] { return measured_profile(workload, profile_in); });
  try {
    const pipedream::Partition partition = pipedream::balanced_partition(profile, positions);
    for (const pipedream::Stage& stage : partition.stages) blocks.push_back(stage.last - stage.first + 1);
  } catch (const pipedream::InputError& error) {
    refuse(std::string("balanced: ") + error.what(), "split=uniform, or the numbers themselves");
  }
  return blocks;
}

std::vector<int> uniform(int layers, int positions) {
  std::vector<int> blocks(static_cast<std::size_t>(positions), layers / positions);
  for (int i = 0; i < layers % positions; ++i) ++blocks[static_cast<std::size_t>(i)];
  return blocks;
}

}  // namespace

std::vector<Part> cut_blocks(const Workload& workload, int positions, const std::string& split,
                             const std::string& profile_in) {
  const auto layers = static_cast<int>(workload.model.layers);
  if (positions > layers) {
    refuse(fmt::format(
               "{} blocks cannot be cut into {} positions (stages x chunks): each has at least one block",
               layers, positions),
           fmt::format("--set model.layers={}, fewer stages, or fewer chunks", positions));
  }
  if (profile_in != "none" && split != "balanced") {
    throw InputError(ExitCode::usage, "profile_in", "split=" + split + " does not read it",
                     "split=balanced, or leave it out");
  }
  const std::vector<int> blocks = split == "balanced"  ? balanced(workload, positions, profile_in)
                                  : split == "uniform" ? uniform(layers, positions)
                                                       : numbers_in(split);
  const int sum = std::accumulate(blocks.begin(), blocks.end(), 0);
  if (static_cast<int>(blocks.size()) != positions || sum != layers) {
    refuse(fmt::format("{} is {} numbers of {} blocks in all; there are {} positions and {} blocks", split,
                       blocks.size(), sum, positions, layers),
           fmt::format("{} numbers that add up to {}, or balanced", positions, layers));
  }
  std::vector<Part> parts;
  for (const int n : blocks) parts.push_back({parts.empty() ? 1 : parts.back().last() + 1, n});
  return parts;
}

}  // namespace sc
