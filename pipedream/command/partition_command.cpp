#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "pipedream/command/flags.h"
#include "pipedream/command/text.h"
#include "pipedream/cost_files.h"
#include "pipedream/error.h"
#include "pipedream/partition.h"
#include "pipedream/schedule_file.h"

namespace sc::pipedream {

namespace {

Profile profile_of(const Flags& flags) {
  Profile profile;
  if (flags.given("profile")) {
    profile = read_profile(flags.text("profile"));
  } else {
    Gpt2Shape shape;
    if (!gpt2_from_name(flags.text("model"), shape)) {
      throw InputError(ExitCode::usage, "pipedream partition --model",
                       "there is no model '" + flags.text("model") + "'",
                       "choose gpt2_124m, gpt2_355m, gpt2_774m or gpt2_1558m");
    }
    const int micro_batch = flags.integer("micro-batch");
    const int sequence = flags.integer("sequence");
    const double flops = flags.number("flops");
    if (micro_batch < 1 || sequence < 1 || flops <= 0) {
      throw InputError(ExitCode::usage, "pipedream partition",
                       "micro-batch, sequence and flops are greater than 0",
                       "choose for example --micro-batch 4 --sequence 1024 --flops 4e14");
    }
    profile = gpt2_profile(shape, micro_batch, sequence, flops);
  }
  if (flags.given("bandwidth")) profile.bandwidth = flags.number("bandwidth");
  if (flags.given("memory")) profile.memory = flags.number("memory");
  return profile;
}

Reduction reduction_of(const Flags& flags) {
  const std::string name = flags.text("reduction");
  if (name == "ring") return Reduction::ring;
  if (name == "parameter_server") return Reduction::parameter_server;
  throw InputError(ExitCode::usage, "pipedream partition --reduction", "there is no reduction '" + name + "'",
                   "choose ring or parameter_server");
}

std::string memory_text(const Profile& profile, double bytes) {
  return bytes_text(bytes) + (profile.memory > 0 && bytes > profile.memory ? " (over the limit)" : "");
}

// In two digits, since nobody measured it.
std::string ms_text(double seconds) {
  const double digit = std::pow(10, std::floor(std::log10(1e3 * seconds)) - 1);
  return number_text(seconds > 0 ? digit * std::round(1e3 * seconds / digit) : 0);
}

std::string layers_text(const Profile& profile, const Stage& stage) {
  const std::string& first = profile.layers[static_cast<std::size_t>(stage.first)].name;
  const std::string& last = profile.layers[static_cast<std::size_t>(stage.last)].name;
  if (stage.first == stage.last) return first;
  std::string text = first;
  return (text += " to ") += last;
}

// A way to cut a model into stages, and the partition; none if there are fewer things to cut than ranks.
struct Split {
  std::string name;     // in --split
  std::string heading;  // in the output
  std::optional<Partition> partition;
};

std::vector<Split> splits(const Profile& profile, int ranks, Reduction reduction) {
  std::vector<Split> all = {{"uniform", "uniform", std::nullopt},
                            {"balanced", "balanced", std::nullopt},
                            {"optimal", "optimal, replicas allowed", std::nullopt}};
  all[2].partition = optimal_partition(profile, ranks, reduction);
  const auto blocks = std::count_if(profile.layers.begin(), profile.layers.end(),
                                    [](const Layer& layer) { return layer.block; });
  if (ranks <= blocks) all[0].partition = uniform_partition(profile, ranks);
  if (ranks <= std::ssize(profile.layers)) all[1].partition = balanced_partition(profile, ranks);
  return all;
}

void print(const Split& split, const Profile& profile, Reduction reduction, std::ostream& out) {
  out << split.heading << ": ";
  if (!split.partition) {
    out << "more ranks than " << (split.name == "uniform" ? "blocks" : "layers") << '\n';
    return;
  }
  const Partition& partition = *split.partition;
  out << count_text(std::ssize(partition.stages), "stage") << " on " << count_text(partition.ranks(), "rank")
      << ", " << ms_text(partition.bottleneck) << " ms a microbatch, " << percent_text(partition.efficiency)
      << " of the ranks' time, " << count_text(partition.in_flight(), "microbatch") << " admitted\n";
  std::vector<std::vector<std::string>> rows = {{"  stage", "layers", "replicas", "ms", "memory"}};
  int ranks = partition.ranks();
  for (std::size_t i = 0; i < partition.stages.size(); ++i) {
    const Stage& stage = partition.stages[i];
    rows.push_back({"  " + std::to_string(i), layers_text(profile, stage), std::to_string(stage.replicas),
                    ms_text(stage_time(profile, stage, reduction)),
                    memory_text(profile, stage_memory(profile, stage, ranks))});
    ranks -= stage.replicas;
  }
  out << table_text(rows);
}

const Partition& choose(const std::string& name, const std::vector<Split>& all) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const Split& s) { return s.name == name; });
  if (found == all.end()) {
    throw InputError(ExitCode::usage, "pipedream partition --split", "there is no split '" + name + "'",
                     "choose optimal, balanced or uniform");
  }
  if (!found->partition) {
    throw InputError(ExitCode::usage, "pipedream partition --split",
                     name + " cannot cut this model for so many ranks",
                     "choose --split optimal, or fewer ranks");
  }
  return *found->partition;
}

void refuse_unread_by_partition(const Flags& flags) {
  flags.refuse_beside("profile", {"model", "micro-batch", "sequence", "flops"});
  flags.refuse_without("costs-out", {"split"});
}

}  // namespace

int partition_command(const std::vector<std::string>& arguments, const Console& console) {
  Flags flags(
      "partition",
      "cuts a model into stages: the optimum of PipeDream's programme, beside a uniform and a balanced cut");
  flags.add("model", "gpt2_124m, gpt2_355m, gpt2_774m, gpt2_1558m: a profile from operation counts",
            "gpt2_355m");
  flags.add("profile", "a measured profile from a .json file instead");
  flags.add("ranks", "ranks to use at most", "4");
  flags.add("micro-batch", "rows of a microbatch", "4");
  flags.add("sequence", "tokens of a row", "1024");
  flags.add("flops", "floating point operations a second of a rank", "4e14");
  flags.add("bandwidth", "bytes a second between ranks; 0: no limit", "0");
  flags.add("memory", "bytes of a rank for weights and activations; 0: no limit", "0");
  flags.add("reduction", "how replicas sum gradients: ring or parameter_server", "ring");
  flags.add("split", "which of optimal, balanced, uniform --costs-out describes", "balanced");
  flags.add("costs-out",
            "writes that split's times and bytes to this .json file, for --costs of the other commands");
  flags.add("profile-out", "writes the profile to this .json file");
  if (flags.parse(arguments, console)) return 0;
  refuse_unread_by_partition(flags);
  const Profile profile = profile_of(flags);
  const Reduction reduction = reduction_of(flags);
  const std::vector<Split> all = splits(profile, flags.integer("ranks"), reduction);
  console.out << profile.name << ", " << count_text(std::ssize(profile.layers), "layer")
              << " (computed from the profile, not measured)\n";
  for (const Split& split : all) print(split, profile, reduction, console.out);
  if (flags.given("profile-out")) write_text(flags.text("profile-out"), to_json(profile));
  if (flags.given("costs-out")) {
    write_text(flags.text("costs-out"), to_json(costs_of(profile, choose(flags.text("split"), all))));
  }
  return 0;
}

}  // namespace sc::pipedream
