#include "pipedream/partition.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "pipedream/error.h"

namespace sc::pipedream {

namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

void require(bool holds, const std::string& where, const std::string& what, const std::string& fix) {
  if (!holds) throw InputError(ExitCode::data, where, what, fix);
}

void require_profile(const Profile& profile) {
  const std::string where = "profile " + profile.name;
  require(!profile.layers.empty() && profile.layers.size() <= kMostLayers, where,
          "has " + std::to_string(profile.layers.size()) + " layers",
          "give 1 to " + std::to_string(kMostLayers));
  const auto good = [](double number) { return std::isfinite(number) && number >= 0; };
  for (const Layer& l : profile.layers) {
    require(good(l.forward) && good(l.backward) && good(l.output_bytes) && good(l.saved_bytes) &&
                good(l.parameter_bytes),
            where + ", layer " + l.name, "a number is negative or not finite", "give 0 or more");
  }
  require(good(profile.bandwidth) && good(profile.memory), where, "a number is negative or not finite",
          "give 0 or more");
}

void require_ranks(const char* name, int ranks, int most) {
  if (ranks >= 1 && ranks <= most) return;
  throw InputError(ExitCode::usage, name, std::to_string(ranks) + " is out of range",
                   "choose 1 to " + std::to_string(most));
}

struct Sums {
  double time = 0, saved = 0, parameters = 0;
};

Sums sums_of(const Profile& profile, int first, int last) {
  Sums sums;
  for (int i = first; i <= last; ++i) {
    const Layer& layer = profile.layers[static_cast<std::size_t>(i)];
    sums.time += layer.time();
    sums.saved += layer.saved_bytes;
    sums.parameters += layer.parameter_bytes;
  }
  return sums;
}

double time_of(const Profile& profile, const Sums& sums, int replicas, Reduction reduction) {
  const double factor = reduction == Reduction::ring ? 2 : 4;
  const double exchange =
      profile.bandwidth > 0 ? factor * (replicas - 1) * sums.parameters / (replicas * profile.bandwidth) : 0;
  return (sums.time + exchange) / replicas;
}

int versions_of(int replicas, int ranks_from_here) { return (ranks_from_here + replicas - 1) / replicas; }

double cut_time(const Profile& profile, int last) {
  return profile.bandwidth > 0
             ? 2 * profile.layers[static_cast<std::size_t>(last)].output_bytes / profile.bandwidth
             : 0;
}

Partition finish(const Profile& profile, std::vector<Stage> stages, Reduction reduction) {
  Partition partition;
  partition.stages = std::move(stages);
  partition.bottleneck = bottleneck_of(profile, partition.stages, reduction);
  const double whole = sums_of(profile, 0, static_cast<int>(profile.layers.size()) - 1).time;
  partition.efficiency = partition.bottleneck > 0 ? whole / (partition.ranks() * partition.bottleneck) : 0;
  return partition;
}

// The dynamic programme. State (first, ranks): layers first.. on exactly `ranks` ranks. Without a `limit` it
// finds the least bottleneck. With one, every stage within the limit is as good as any other, and it finds
// the fewest stages. That is a second run, because the rest with the least bottleneck may need more stages
// than the whole must.
class Optimizer {
 public:
  Optimizer(const Profile& profile, int ranks, int most_replicas, Reduction reduction,
            double limit = kInfinite)
      : profile_(profile),
        reduction_(reduction),
        limit_(limit),
        most_replicas_(most_replicas),
        layers_(static_cast<int>(profile.layers.size())),
        ranks_(ranks),
        best_(static_cast<std::size_t>(layers_ + 1) * static_cast<std::size_t>(ranks + 1)) {
    best_[index(layers_, 0)] = {0, 0, 0, 0};
    for (int first = layers_ - 1; first >= 0; --first) solve(first);
  }

  // The number of ranks with the best partition; the smallest among equals.
  [[nodiscard]] int best_ranks() const {
    int ranks = 1;
    for (int r = 2; r <= ranks_; ++r) {
      if (at(0, r).bottleneck < at(0, ranks).bottleneck) ranks = r;
    }
    require(at(0, ranks).bottleneck < kInfinite, "profile " + profile_.name,
            "no partition fits into " + std::to_string(profile_.memory) + " bytes a rank",
            "give more ranks or more memory");
    return ranks;
  }

  [[nodiscard]] double bottleneck(int ranks) const { return at(0, ranks).bottleneck; }

  // The best partition on exactly this many ranks.
  [[nodiscard]] std::vector<Stage> stages_on(int ranks) const {
    std::vector<Stage> stages;
    for (int first = 0; first < layers_;) {
      const Best& best = at(first, ranks);
      stages.push_back({first, best.last, best.replicas});
      first = best.last + 1;
      ranks -= best.replicas;
    }
    return stages;
  }

 private:
  struct Best {
    double bottleneck = kInfinite;
    int stages = 0;
    int last = 0, replicas = 0;
  };

  [[nodiscard]] std::size_t index(int first, int ranks) const {
    return static_cast<std::size_t>(first) * static_cast<std::size_t>(ranks_ + 1) +
           static_cast<std::size_t>(ranks);
  }
  [[nodiscard]] const Best& at(int first, int ranks) const { return best_[index(first, ranks)]; }

  void solve(int first) {
    Sums sums;
    for (int last = first; last < layers_; ++last) {
      const Layer& layer = profile_.layers[static_cast<std::size_t>(last)];
      sums.time += layer.time();
      sums.saved += layer.saved_bytes;
      sums.parameters += layer.parameter_bytes;
      for (int replicas = 1; replicas <= most_replicas_; ++replicas) try_stage(first, last, replicas, sums);
    }
  }

  // Tries layers first..last as one stage of `replicas` ranks, before the best partition of the following
  // layers.
  void try_stage(int first, int last, int replicas, const Sums& sums) {
    const double cut = last + 1 < layers_ ? cut_time(profile_, last) : 0;
    double own = std::max(cut, time_of(profile_, sums, replicas, reduction_));
    if (limit_ < kInfinite) own = own <= limit_ ? 0 : kInfinite;
    for (int ranks = replicas; ranks <= ranks_; ++ranks) {
      if (fits(sums, replicas, ranks)) improve(first, ranks, last, replicas, own);
    }
  }

  [[nodiscard]] bool fits(const Sums& sums, int replicas, int ranks) const {
    return profile_.memory <= 0 ||
           versions_of(replicas, ranks) * (sums.saved + sums.parameters) <= profile_.memory;
  }

  void improve(int first, int ranks, int last, int replicas, double own) {
    const Best& rest = at(last + 1, ranks - replicas);
    const double bottleneck = std::max(own, rest.bottleneck);
    Best& best = best_[index(first, ranks)];
    const bool better =
        bottleneck < best.bottleneck ||
        (bottleneck == best.bottleneck && bottleneck < kInfinite && rest.stages + 1 < best.stages);
    if (better) best = {bottleneck, rest.stages + 1, last, replicas};
  }

  const Profile& profile_;
  const Reduction reduction_;
  const double limit_;
  const int most_replicas_, layers_, ranks_;
  std::vector<Best> best_;
};

}  // namespace

int Partition::ranks() const {
  int sum = 0;
  for (const Stage& stage : stages) sum += stage.replicas;
  return sum;
}

int Partition::in_flight() const { return versions_of(stages.front().replicas, ranks()); }

double stage_time(const Profile& profile, const Stage& stage, Reduction reduction) {
  return time_of(profile, sums_of(profile, stage.first, stage.last), stage.replicas, reduction);
}

double stage_memory(const Profile& profile, const Stage& stage, int ranks_from_here) {
  const Sums sums = sums_of(profile, stage.first, stage.last);
  return versions_of(stage.replicas, ranks_from_here) * (sums.saved + sums.parameters);
}

double bottleneck_of(const Profile& profile, const std::vector<Stage>& stages, Reduction reduction) {
  double bottleneck = 0;
  for (const Stage& stage : stages) {
    bottleneck = std::max(bottleneck, stage_time(profile, stage, reduction));
    if (&stage != &stages.back()) bottleneck = std::max(bottleneck, cut_time(profile, stage.last));
  }
  return bottleneck;
}

Partition optimal_partition(const Profile& profile, int ranks, Reduction reduction) {
  require_profile(profile);
  require_ranks("ranks", ranks, kMostRanks);
  const Optimizer least(profile, ranks, ranks, reduction);
  const int used = least.best_ranks();
  const Optimizer fewest(profile, used, used, reduction, least.bottleneck(used));
  return finish(profile, fewest.stages_on(used), reduction);
}

Partition uniform_partition(const Profile& profile, int stages) {
  require_profile(profile);
  std::vector<int> blocks;
  for (std::size_t i = 0; i < profile.layers.size(); ++i) {
    if (profile.layers[i].block) blocks.push_back(static_cast<int>(i));
  }
  const auto count = static_cast<int>(blocks.size());
  require_ranks("stages", stages, count);
  std::vector<Stage> cut;
  int next = 0;
  for (int s = 0; s < stages; ++s) {
    const int end = next + count / stages + (s < count % stages ? 1 : 0);
    const int first = s == 0 ? 0 : cut.back().last + 1;
    const bool last_stage = s + 1 == stages;
    cut.push_back(
        {first,
         last_stage ? static_cast<int>(profile.layers.size()) - 1 : blocks[static_cast<std::size_t>(end)] - 1,
         1});
    next = end;
  }
  return finish(profile, cut, Reduction::ring);
}

Partition balanced_partition(const Profile& profile, int stages) {
  require_profile(profile);
  const auto layers = static_cast<int>(profile.layers.size());
  require_ranks("stages", stages, layers);
  Profile unlimited = profile;
  unlimited.bandwidth = unlimited.memory = 0;
  const std::vector<Stage> cut = Optimizer(unlimited, stages, 1, Reduction::ring).stages_on(stages);
  return finish(profile, cut, Reduction::ring);
}

Costs costs_of(const Profile& profile, const Partition& partition) {
  Costs costs;
  costs.times.clear();
  costs.bytes.clear();
  costs.bandwidth = profile.bandwidth;
  for (const Stage& stage : partition.stages) {
    StageTimes times{0, 0, 0, 0};
    for (int i = stage.first; i <= stage.last; ++i) {
      const Layer& layer = profile.layers[static_cast<std::size_t>(i)];
      times.forward += layer.forward / stage.replicas;
      times.backward_input += layer.backward / 2 / stage.replicas;
    }
    times.backward_weights = times.backward_input;
    const Sums sums = sums_of(profile, stage.first, stage.last);
    costs.times.push_back(times);
    costs.bytes.push_back({sums.saved, sums.parameters});
    const bool cut = &stage != &partition.stages.back();
    const double output = profile.layers[static_cast<std::size_t>(stage.last)].output_bytes;
    costs.message_bytes = std::max(costs.message_bytes, cut ? output : 0);
  }
  return costs;
}

bool gpt2_from_name(const std::string& name, Gpt2Shape& shape) {
  for (const Gpt2Shape& known : {Gpt2Shape{"gpt2_124m", 12, 768}, Gpt2Shape{"gpt2_355m", 24, 1024},
                                 Gpt2Shape{"gpt2_774m", 36, 1280}, Gpt2Shape{"gpt2_1558m", 48, 1600}}) {
    if (known.name != name) continue;
    shape = known;
    return true;
  }
  return false;
}

Profile gpt2_profile(const Gpt2Shape& shape, int micro_batch, int sequence, double flops) {
  constexpr double kVocabulary = 50304;
  constexpr double kElement = 2;  // in bytes
  const double d = shape.width;
  const double tokens = static_cast<double>(micro_batch) * sequence;
  const double edge = kElement * tokens * d;
  const auto layer = [&](const std::string& name, double operations, double saved, double parameters) {
    const double forward = operations * tokens / flops;
    return Layer{name, forward, 2 * forward, edge, saved, kElement * parameters, true};
  };
  Profile profile;
  profile.name = shape.name;
  profile.layers.push_back(layer("embedding", 0, 0, (kVocabulary + sequence) * d));
  for (int i = 1; i <= shape.blocks; ++i) {
    profile.layers.push_back(layer("block " + std::to_string(i), 24 * d * d + 2 * sequence * d,
                                   34 * tokens * d, 12 * d * d + 13 * d));
  }
  profile.layers.push_back(layer("head", 2 * kVocabulary * d, edge, kVocabulary * d + 2 * d));
  profile.layers.front().block = false;
  profile.layers.back().block = false;
  return profile;
}

}  // namespace sc::pipedream
