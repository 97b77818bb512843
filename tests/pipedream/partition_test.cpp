#include "pipedream/partition.h"

#include <limits>
#include <random>

#include "pipedream/cost_files.h"
#include "tests/pipedream/support.h"

namespace sc::pipedream {
namespace {

using test::error_of, test::expect_answers, test::expect_numbers, test::expect_texts;

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// What optimal_partition() minimizes, the most important criterion first.
struct Cost {
  double bottleneck = kInfinite;
  int ranks = 0;
  std::size_t stages = 0;
  friend auto operator<=>(const Cost&, const Cost&) = default;
};

// Tries all partitions of the layers from `first` on onto at most `ranks` ranks, one by one.
class BruteForce {
 public:
  BruteForce(const Profile& profile, Reduction reduction) : profile_(profile), reduction_(reduction) {}

  Cost best(int ranks) {
    best_ = {};
    extend(0, ranks);
    return best_;
  }

 private:
  void extend(int first, int ranks) {
    const auto layers = static_cast<int>(profile_.layers.size());
    if (first == layers) return judge();
    for (int last = first; last < layers; ++last)
      for (int replicas = 1; replicas <= ranks; ++replicas) {
        stages_.push_back({first, last, replicas});
        extend(last + 1, ranks - replicas);
        stages_.pop_back();
      }
  }

  void judge() {
    int ranks = 0;
    for (auto stage = stages_.rbegin(); stage != stages_.rend(); ++stage) {
      ranks += stage->replicas;
      if (profile_.memory > 0 && stage_memory(profile_, *stage, ranks) > profile_.memory) return;
    }
    const Cost cost{bottleneck_of(profile_, stages_, reduction_), ranks, stages_.size()};
    if (cost < best_) best_ = cost;
  }

  const Profile& profile_;
  const Reduction reduction_;
  std::vector<Stage> stages_;
  Cost best_;
};

// A random profile of whole numbers, so that the order of summation does not change a result.
Profile random_profile(std::mt19937& random, int layers) {
  const auto number = [&](int most) { return static_cast<double>(random() % static_cast<unsigned>(most)); };
  Profile profile{"random", {}};
  for (int i = 0; i < layers; ++i)
    profile.layers.push_back({"layer", number(20), number(40), number(50), number(60), number(80), true});
  return profile;
}

TEST(Partition, EqualsBruteForceUpToTwelveLayers) {
  std::mt19937 random(7);
  int limited = 0, refused = 0;
  for (int layers = 1; layers <= 12; ++layers)
    for (int repeat = 0; repeat < 12; ++repeat) {
      Profile profile = random_profile(random, layers);
      profile.bandwidth = repeat % 3 == 0 ? 0 : 1 + random() % 8;
      profile.memory = repeat % 4 == 3 ? 100 + random() % 900 : 0;
      const int ranks = 1 + static_cast<int>(random() % (layers > 9 ? 4 : 6));
      const Reduction reduction = repeat % 2 == 0 ? Reduction::ring : Reduction::parameter_server;
      const Cost expected = BruteForce(profile, reduction).best(ranks);
      limited += profile.memory > 0 ? 1 : 0;
      if (expected.bottleneck == kInfinite) {
        ++refused;
        EXPECT_NE(error_of([&] { optimal_partition(profile, ranks, reduction); }).find("no partition fits"),
                  std::string::npos);
        continue;
      }
      const Partition found = optimal_partition(profile, ranks, reduction);
      const std::string which = std::to_string(layers) + " layers, " + std::to_string(ranks) +
                                " ranks, repeat " + std::to_string(repeat);
      EXPECT_EQ(found.bottleneck, expected.bottleneck) << which;
      EXPECT_EQ(found.ranks(), expected.ranks) << which;
      EXPECT_EQ(found.stages.size(), expected.stages) << which;
      EXPECT_EQ(found.stages.front().first, 0);
      EXPECT_EQ(found.stages.back().last, layers - 1);
    }
  EXPECT_GT(limited, 20);
  EXPECT_GT(refused, 3);
}

TEST(Partition, BalancedEqualsBruteForce) {
  std::mt19937 random(11);
  for (int layers = 1; layers <= 10; ++layers) {
    const Profile profile = random_profile(random, layers);
    for (int stages = 1; stages <= std::min(layers, 5); ++stages) {
      double best = kInfinite;
      for (int mask = 0; mask < 1 << (layers - 1); ++mask) {  // bit i: a cut behind layer i
        std::vector<Stage> cut = {{0, layers - 1, 1}};
        for (int i = 0; i + 1 < layers; ++i) {
          if ((mask >> i & 1) == 0) continue;
          cut.back().last = i;
          cut.push_back({i + 1, layers - 1, 1});
        }
        if (static_cast<int>(cut.size()) == stages)
          best = std::min(best, bottleneck_of(profile, cut, Reduction::ring));
      }
      const Partition found = balanced_partition(profile, stages);
      EXPECT_EQ(found.bottleneck, best);
      EXPECT_EQ(static_cast<int>(found.stages.size()), stages);
    }
  }
}

// Megatron-LM's 530B model has 105 blocks, so up to 105 stages.
TEST(Partition, MoreStagesThanReplicasAreTried) {
  Profile profile{.name = "alike", .layers = {}};
  for (int i = 0; i < 105; ++i) profile.layers.push_back({.name = "block", .forward = 1, .backward = 2});
  for (const Partition& found : {balanced_partition(profile, 105), uniform_partition(profile, 105)}) {
    EXPECT_EQ(found.stages.size(), 105U);
    EXPECT_EQ(found.bottleneck, 3);
  }
}

// At 355M, GPT-2's LM head costs as much as 3.8 blocks, which caps four uniform stages at 71 %.
TEST(Partition, TheHeadOfGpt2Counts) {
  const std::vector<std::pair<std::string, double>> heads = {
      {"gpt2_124m", 4.9}, {"gpt2_355m", 3.8}, {"gpt2_774m", 3.1}, {"gpt2_1558m", 2.5}};
  for (const auto& [name, blocks] : heads) {
    Gpt2Shape shape;
    ASSERT_TRUE(gpt2_from_name(name, shape));
    const Profile profile = gpt2_profile(shape, 4, 1024, 1e12);
    EXPECT_NEAR(profile.layers.back().time() / profile.layers[1].time(), blocks, 0.05) << name;
    EXPECT_EQ(profile.layers.size(), static_cast<std::size_t>(shape.blocks) + 2);
  }
  Gpt2Shape shape;
  ASSERT_TRUE(gpt2_from_name("gpt2_355m", shape));
  const Profile profile = gpt2_profile(shape, 4, 1024, 1e12);
  const Partition uniform = uniform_partition(profile, 4);
  EXPECT_NEAR(uniform.efficiency, 0.71, 0.005);
  EXPECT_EQ(uniform_partition(profile, 5).stages,  // 24 blocks: 5, 5, 5, 5, 4
            (std::vector<Stage>{{0, 5, 1}, {6, 10, 1}, {11, 15, 1}, {16, 20, 1}, {21, 25, 1}}));
  EXPECT_EQ(uniform.stages, (std::vector<Stage>{{0, 6, 1}, {7, 12, 1}, {13, 18, 1}, {19, 25, 1}}));
  const Partition balanced = balanced_partition(profile, 4);
  EXPECT_NEAR(balanced.efficiency, 0.99, 0.005);
  EXPECT_EQ(balanced.stages.back(), (Stage{22, 25, 1}));  // three blocks and the head
  EXPECT_FALSE(gpt2_from_name("gpt3", shape));
  // The expected parameters are those of Hugging Face's GPT-2 medium, with the vocabulary padded and the tied
  // matrix counted on the first stage and on the last.
  double bytes = 0;
  for (const Layer& layer : profile.layers) bytes += layer.parameter_bytes;
  EXPECT_EQ(bytes, 2.0 * (354823168 + 47 * 1024 + 50304 * 1024));
}

TEST(Partition, ReplicatesALayerThatCannotBeCut) {
  Profile profile{"", {{"big", 10, 20, 8, 0, 0, true}, {"small", 4, 6, 8, 0, 0, true}}};
  const Partition found = optimal_partition(profile, 4, Reduction::ring);
  EXPECT_EQ(found.stages,
            (std::vector<Stage>{{0, 1, 4}}));  // nothing to exchange: data parallelism is perfect
  EXPECT_EQ(found.bottleneck, 10);
  EXPECT_EQ(found.in_flight(), 1);
  profile.layers[1].parameter_bytes = 400;  // now the small layer's weights are costly to exchange
  profile.bandwidth = 10;
  const Partition cut = optimal_partition(profile, 4, Reduction::ring);
  EXPECT_EQ(cut.stages, (std::vector<Stage>{{0, 0, 3}, {1, 1, 1}}));
  EXPECT_EQ(cut.bottleneck, 10);
  EXPECT_EQ(cut.in_flight(), 2);  // ceil(4 / 3)
}

TEST(Partition, WorkedFormulas) {
  Profile profile{"", {{"a", 1, 2, 30, 5, 40, true}, {"b", 2, 4, 50, 7, 60, true}}, 10};
  const Stage both{0, 1, 2};
  expect_numbers({
      {stage_time(profile, both, Reduction::parameter_server), (9 + 4 * 0.5 * 100 / 10) / 2},
      {stage_time(profile, both, Reduction::ring), (9 + 2 * 0.5 * 100 / 10) / 2},
      {stage_memory(profile, both, 4), 2 * (12 + 100)},
      {stage_memory(profile, both, 5), 3 * (12 + 100)},
      {bottleneck_of(profile, {{0, 0, 1}, {1, 1, 1}}, Reduction::ring),
       6},  // 2 * 30 / 10 = 6 = the second stage
  });
  profile.layers[0].output_bytes = 31;
  EXPECT_DOUBLE_EQ(bottleneck_of(profile, {{0, 0, 1}, {1, 1, 1}}, Reduction::ring), 6.2);
}

TEST(Partition, PrefersFewerRanksThenFewerStages) {
  Profile profile{
      "", {{"a", 1, 0, 0, 0, 0, true}, {"b", 9, 0, 0, 0, 1e6, true}, {"c", 1, 0, 0, 0, 0, true}}, 1};
  const Partition found = optimal_partition(profile, 8, Reduction::ring);
  EXPECT_EQ(found.bottleneck, 9);
  EXPECT_EQ(found.ranks(), 3);
  profile.layers[0].forward = profile.layers[2].forward = 0;
  EXPECT_EQ(optimal_partition(profile, 8, Reduction::ring).stages, (std::vector<Stage>{{0, 2, 1}}));
}

// Layers take few different times, so that many partitions are equally good.
TEST(Partition, TakesTheFewestStagesAmongEquals) {
  std::mt19937 random(3);
  for (int repeat = 0; repeat < 300; ++repeat) {
    Profile profile = random_profile(random, 2 + repeat % 5);
    for (Layer& layer : profile.layers) {
      layer.forward = static_cast<double>(random() % 3);
      layer.backward = 0;
      layer.parameter_bytes = static_cast<double>(random() % 2);
    }
    profile.bandwidth = repeat % 2 == 0 ? 0 : 64;
    const int ranks = 1 + repeat % 6;
    const Cost expected = BruteForce(profile, Reduction::ring).best(ranks);
    const Partition found = optimal_partition(profile, ranks, Reduction::ring);
    EXPECT_EQ(found.bottleneck, expected.bottleneck) << repeat;
    EXPECT_EQ(found.ranks(), expected.ranks) << repeat;
    EXPECT_EQ(found.stages.size(), expected.stages) << repeat;
  }
}

// The shape under test: d = 768, 3 rows of 5 tokens, and a device of 10 operations a second.
TEST(Partition, ProfilesCountOperationsAndBytes) {
  Gpt2Shape shape;
  ASSERT_TRUE(gpt2_from_name("gpt2_124m", shape));
  const Profile profile = gpt2_profile(shape, 3, 5, 10);
  const Layer& block = profile.layers[1];
  expect_numbers({{block.forward, (24.0 * 768 * 768 + 2 * 5 * 768) * 15 / 10},
                  {block.backward, 2 * block.forward},
                  {block.output_bytes, 2 * 15 * 768.0},
                  {block.saved_bytes, 34 * 15 * 768.0},
                  {block.parameter_bytes, 2 * (12.0 * 768 * 768 + 13 * 768)}});
  const Layer& head = profile.layers.back();
  EXPECT_DOUBLE_EQ(head.forward, 2.0 * 50304 * 768 * 15 / 10);
  EXPECT_DOUBLE_EQ(head.saved_bytes, 2 * 15 * 768.0);
  EXPECT_DOUBLE_EQ(head.parameter_bytes, 2 * (50304.0 * 768 + 2 * 768));
  const Layer& embedding = profile.layers.front();
  EXPECT_EQ(embedding.time(), 0);
  EXPECT_DOUBLE_EQ(embedding.parameter_bytes, 2 * (50304.0 + 5) * 768);
}

TEST(Partition, NothingTakesNoTime) {
  Profile profile{"", {{"a", 0, 0, 1, 1, 1, true}}};
  const Partition found = optimal_partition(profile, 3, Reduction::ring);
  EXPECT_EQ(found.bottleneck, 0);
  EXPECT_EQ(found.efficiency, 0);
}

TEST(Partition, CostsForTheSimulator) {
  Profile profile{
      "", {{"a", 2, 4, 30, 5, 40, true}, {"b", 3, 8, 50, 7, 60, true}, {"c", 1, 2, 99, 1, 2, true}}, 10};
  Partition partition;
  partition.stages = {{0, 1, 2}, {2, 2, 1}};
  const Costs costs = costs_of(profile, partition);
  EXPECT_EQ(costs.times, (std::vector<StageTimes>{{2.5, 3, 3, 0}, {1, 1, 1, 0}}));
  EXPECT_EQ(costs.bytes, (std::vector<StageBytes>{{12, 100}, {1, 2}}));
  EXPECT_EQ(costs.message_bytes, 50);
  EXPECT_EQ(costs.bandwidth, 10);
}

TEST(Partition, RefusesBadInput) {
  Profile profile;
  profile.name = "p";
  const auto refuse = [&](ExitCode code = ExitCode::data) {
    return error_of([&] { optimal_partition(profile, 2, Reduction::ring); }, code);
  };
  EXPECT_EQ(refuse(), "profile p: has 0 layers | give 1 to 256");
  profile.layers.assign(257, {"l", 1, 1, 1, 1, 1, true});
  EXPECT_EQ(refuse(), "profile p: has 257 layers | give 1 to 256");
  profile.layers.pop_back();
  EXPECT_EQ(optimal_partition(profile, 1, Reduction::ring).stages, (std::vector<Stage>{{0, 255, 1}}));
  profile.layers.resize(2);
  profile.layers[1].saved_bytes = -1;
  EXPECT_EQ(refuse(), "profile p, layer l: a number is negative or not finite | give 0 or more");
  profile.layers[1].saved_bytes = 1;
  profile.memory = kInfinite;
  EXPECT_EQ(refuse(), "profile p: a number is negative or not finite | give 0 or more");
  profile.memory = 0;
  const auto usage = [](const std::function<void()>& body) { return error_of(body, ExitCode::usage); };
  expect_texts(
      {{usage([&] { optimal_partition(profile, 65, Reduction::ring); }),
        "ranks: 65 is out of range | choose 1 to 64"},
       {usage([&] { uniform_partition(profile, 3); }), "stages: 3 is out of range | choose 1 to 2"},
       {usage([&] { balanced_partition(profile, 0); }), "stages: 0 is out of range | choose 1 to 2"}});
}

TEST(CostFiles, ReadBackEqual) {
  Costs costs{.times = {{1, 2, 3, 0.1}, {0.25, 1e-3, 0, 0}},
              .bytes = {{10, 20}, {1e9, 7}},
              .message_bytes = 5,
              .latency = 1e-6,
              .bandwidth = 2.5e10};
  EXPECT_EQ(costs_from_json(to_json(costs), "t"), costs);
  EXPECT_EQ(
      costs_from_json("{\"times\": [{\"forward\": 1, \"backward_input\": 1, \"backward_weights\": 1}]}", "t"),
      Costs{});
  Gpt2Shape shape;
  ASSERT_TRUE(gpt2_from_name("gpt2_124m", shape));
  Profile profile = gpt2_profile(shape, 2, 512, 1e14);
  profile.memory = 8e10;
  profile.bandwidth = 25e9;
  EXPECT_EQ(profile_from_json(to_json(profile), "t"), profile);
  const Profile little = profile_from_json(
      "{\"profile\": \"x\", \"layers\": [{\"name\": \"a\", \"forward\": 1, \"backward\": 2}]}", "t");
  EXPECT_EQ(little.layers[0], (Layer{"a", 1, 2, 0, 0, 0, true}));
}

TEST(CostFiles, ErrorsNameTheKey) {
  const std::string fix = " | correct it: valid JSON, every key once, as pipedream/README.md shows it";
  const auto costs = [](const std::string& text) {
    return error_of([&] { costs_from_json(text, "c.json"); });
  };
  expect_answers(costs, {{"{}", "c.json: \"times\" is missing" + fix},
                         {"{\"times\": [{}]}", "c.json: \"times[0].forward\" is missing" + fix},
                         {"{\"times\": [{\"forward\": -1}]}",
                          "c.json: \"times[0].forward\" must be a number from 0, not -1" + fix},
                         {"{\"times\": [], \"speed\": 1}", "c.json: \"speed\" is not a key of it" + fix},
                         {"{\"times\": [], \"bytes\": [{\"weights\": 1, \"activations\": \"x\"}]}",
                          "c.json: \"bytes[0].activations\" must be a number from 0, not \"x\"" + fix}});
  const auto profile = [](const std::string& text) {
    return error_of([&] { profile_from_json(text, "p.json"); });
  };
  expect_texts(
      {{profile("{\"profile\": \"x\", \"layers\": [{\"name\": \"a\", \"forward\": 1, \"backward\": 2, "
                "\"block\": 1}]}"),
        "p.json: \"layers[0].block\" must be true or false, not 1" + fix},
       {error_of([] { read_costs("no.json"); }, ExitCode::usage), "no.json: cannot be read | check the name"},
       {error_of([] { read_profile("no.json"); }, ExitCode::usage),
        "no.json: cannot be read | check the name"}});
}

}  // namespace
}  // namespace sc::pipedream
