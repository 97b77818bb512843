// Tests the flat layout: published parameter counts, exact persistent sets, alignment, slices and decay
// ranges.
#include "common/model/param_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "tests/storage/temp_dir.h"
#include "tests/support/answers.h"
#include "tests/support/pairwise.h"

namespace sc {
namespace {

GptConfig gpt2(std::int64_t layers, std::int64_t heads, std::int64_t width) {
  return {.layers = layers, .heads = heads, .width = width, .context = 1024, .vocab = 50257, .tied = true};
}
const GptConfig kSmall = gpt2(12, 12, 768), kMedium = gpt2(24, 16, 1024), kLarge = gpt2(36, 20, 1280),
                kXl = gpt2(48, 25, 1600);

struct Count {
  int tensors = 0;
  std::int64_t elements = 0;
  bool operator==(const Count&) const = default;
};

Count persistent(const GptConfig& config, std::int64_t persist_below) {
  const ParamLayout layout(config, WorldSize{1}, persist_below);
  Count count;
  for (int u = 0; u < layout.num_units(); ++u) {
    for (const ParamTensor& t : layout.unit(u).tensors) {
      if (t.segment != Segment::whole) continue;
      ++count.tensors;
      count.elements += t.numel();
    }
  }
  return count;
}

TEST(ParamLayout, CountsThePublishedParameters) {
  const auto parameters = [](const GptConfig& c) {
    return ParamLayout(c, WorldSize{4}).parameters().value();
  };
  test::expect_counts({{parameters(kSmall), 124439808},
                       {parameters(kMedium), 354823168},
                       {parameters(kLarge), 774030080},
                       {parameters(kXl), 1557611200}});
  GptConfig untied = kSmall;
  untied.tied = false;
  EXPECT_EQ(parameters(untied), 124439808 + 50257 * 768);
}

// The expected values are those of ZeRO-3's stage3_param_persistence_threshold.
TEST(ParamLayout, PersistsTensorsBelowTheThreshold) {
  test::expect_each<Count>({
      {persistent(kLarge, 100'000), (Count{290, 601600})},
      {persistent(kMedium, 100'000), (Count{194, 321536})},
      {persistent(kSmall, 100'000), (Count{98, 121344})},
      {persistent(kSmall, 1'000'000), (Count{111, 7985664})},
      {persistent(kSmall, 0), (Count{0, 0})},
      {persistent(kSmall, 768), (Count{0, 0})}  // The threshold itself is not below.
  });
  EXPECT_EQ(persistent(kSmall, 769).tensors, 74);  // 6 of width d a block, 2 of ln_f
}

TEST(ParamLayout, NamesAndShapesFollowHuggingFace) {
  const GptConfig c{.layers = 4, .heads = 4, .width = 128, .context = 256, .vocab = 257, .tied = false};
  const ParamLayout layout(c, WorldSize{2});
  ASSERT_EQ(layout.num_units(), 6);
  EXPECT_EQ(layout.num_blocks(), 4);
  EXPECT_EQ(layout.last_unit(), 5);
  const std::map<std::pair<int, std::string>, std::vector<std::int64_t>> shapes = {
      {{0, "wte.weight"}, {384, 128}},
      {{0, "wpe.weight"}, {256, 128}},
      {{5, "lm_head.weight"}, {384, 128}},
      {{4, "h.3.mlp.c_fc.weight"}, {512, 128}},
      {{4, "h.3.mlp.c_proj.weight"}, {128, 512}},
      {{4, "h.3.attn.c_attn.weight"}, {384, 128}}};
  for (const auto& [at, shape] : shapes)
    EXPECT_EQ(layout.find(at.first, at.second)->shape, shape) << at.second;
  EXPECT_EQ(layout.find(0, "lm_head.weight"), nullptr);
  EXPECT_EQ(layout.find(4, "h.2.ln_1.weight"), nullptr);
  const std::vector<std::string> names = {
      "h.3.ln_1.weight",        "h.3.ln_1.bias",        "h.3.attn.c_attn.weight", "h.3.attn.c_attn.bias",
      "h.3.attn.c_proj.weight", "h.3.attn.c_proj.bias", "h.3.ln_2.weight",        "h.3.ln_2.bias",
      "h.3.mlp.c_fc.weight",    "h.3.mlp.c_fc.bias",    "h.3.mlp.c_proj.weight",  "h.3.mlp.c_proj.bias"};
  ASSERT_EQ(layout.unit(4).tensors.size(), names.size());
  for (std::size_t i = 0; i < names.size(); ++i) EXPECT_EQ(layout.unit(4).tensors[i].name, names[i]);
}

// A width that is no multiple of the alignment, and worlds that divide nothing.
TEST(ParamLayout, AlignsTensorsAndCutsEqualSlices) {
  const GptConfig odd{.layers = 3, .heads = 3, .width = 45, .context = 17, .vocab = 100, .tied = false};
  for (const int world : {1, 2, 3, 4, 7}) {
    for (const std::int64_t persist : {0, 100, 3000}) {
      const ParamLayout layout(odd, WorldSize{world}, persist);
      std::int64_t begin[2] = {0, 0};
      for (int u = 0; u < layout.num_units(); ++u) {
        std::int64_t end[2] = {0, 0};
        for (const ParamTensor& t : layout.unit(u).tensors) {
          const int s = static_cast<int>(t.segment);
          EXPECT_EQ(t.offset % kAlign, 0);
          EXPECT_GE(t.offset, end[s]) << t.name;
          EXPECT_LT(t.offset - end[s], kAlign) << "no holes: " << t.name;
          end[s] = t.offset + t.numel();
        }
        for (const Segment segment : {Segment::sharded, Segment::whole}) {
          const int s = static_cast<int>(segment);
          const std::int64_t size = layout.unit(u).size(segment);
          EXPECT_EQ(layout.unit(u).begin(segment), begin[s]);
          begin[s] += size;
          EXPECT_EQ(size % (world * kAlign), 0);
          EXPECT_GE(size, end[s]);
          EXPECT_LT(size - end[s], world * kAlign) << "padding is minimal";
          for (int r = 0; r < world; ++r) {
            EXPECT_EQ(layout.slice(u, segment, Rank{r}), (Range{r * size / world, (r + 1) * size / world}));
          }
        }
      }
      EXPECT_EQ(layout.arena_size(Segment::sharded).value(), begin[0]);
      EXPECT_EQ(layout.arena_size(Segment::whole).value(), begin[1]);
      EXPECT_EQ(layout.arena_size().value(), begin[0] + begin[1]);
    }
  }
}

// Every element of every slice decays exactly if it belongs to a matrix.
TEST(ParamLayout, DecayRangesAreTheMatricesAndNothingElse) {
  const GptConfig odd{.layers = 1, .heads = 3, .width = 45, .context = 17, .vocab = 100, .tied = false};
  const ParamLayout layout(odd, WorldSize{3}, 800);
  std::int64_t decayed = 0;
  for (int u = 0; u < layout.num_units(); ++u) {
    for (const Segment segment : {Segment::sharded, Segment::whole}) {
      std::set<std::int64_t> want, got;
      for (const ParamTensor& t : layout.unit(u).tensors) {
        if (t.segment != segment || t.shape.size() != 2) continue;
        for (std::int64_t e = 0; e < t.numel(); ++e) want.insert(t.offset + e);
      }
      for (int r = 0; r < 3; ++r) {
        const Range slice = layout.slice(u, segment, Rank{r});
        std::int64_t last_end = -1;
        for (const Range& range : layout.decay_ranges(u, segment, slice)) {
          EXPECT_GT(range.begin, last_end) << "ascending, disjoint, neighbours merged";
          EXPECT_LE(range.end, slice.size());
          EXPECT_GT(range.size(), 0);
          last_end = range.end;
          for (std::int64_t e = range.begin; e < range.end; ++e) got.insert(slice.begin + e);
        }
      }
      EXPECT_EQ(got, want) << "unit " << u;
      decayed += static_cast<std::int64_t>(got.size());
    }
  }
  EXPECT_EQ(decayed, (128 + 17 + 128 + 12 * 45) * 45);
}

// Each element of every tensor is on one tensor rank, or on all of them in the whole segment; parts differ by
// at most one granule.
TEST(ParamLayout, TensorRanksHaveEachElementOnce) {
  const GptConfig odd{.layers = 2, .heads = 5, .width = 45, .context = 17, .vocab = 257, .tied = false};
  const GptConfig like_xl{.layers = 48, .heads = 25, .width = 200, .context = 128, .vocab = 5025};
  for (const GptConfig& config : {odd, test::all_settings() ? kXl : like_xl}) {
    const ParamLayout whole(config, WorldSize{1});
    for (const int ranks : {1, 2, 3, 4, 5}) {
      for (int unit : {0, 1, whole.last_unit()}) {
        for (const ParamTensor& t : whole.unit(unit).tensors) {
          std::vector<int> found(static_cast<std::size_t>(t.numel()), 0);
          const bool replicated = ranks > 1 && (t.shape.size() == 1 ? !t.name.ends_with("c_attn.bias") &&
                                                                          !t.name.ends_with("c_fc.bias")
                                                                    : t.name == "wpe.weight");
          for (int rank = 0; rank < ranks; ++rank) {
            const ParamLayout layout(config, WorldSize{1}, TensorCut{rank, ranks});
            const ParamTensor& part = *layout.find(unit, t.name);
            EXPECT_EQ(part.segment, replicated ? Segment::whole : Segment::sharded) << t.name;
            EXPECT_EQ(part.whole.shape, t.shape);
            std::int64_t numel = 1, here = 0;
            for (const std::int64_t size : part.shape) numel *= size;
            EXPECT_EQ(part.numel(), numel) << t.name;
            for_each_run(part, {0, part.numel()}, [&](Range run, std::int64_t at) {
              EXPECT_EQ(run.begin, here) << "runs follow each other";
              here = run.end;
              for (std::int64_t i = 0; i < run.size(); ++i) ++found[static_cast<std::size_t>(at + i)];
            });
            EXPECT_EQ(here, numel);
          }
          EXPECT_EQ(std::ranges::count(found, replicated ? ranks : 1), t.numel())
              << t.name << " on " << ranks;
        }
      }
    }
  }
}

// for_each_run() gives the same places for any range, also for one that begins inside a row or a rank's
// columns.
TEST(ParamLayout, RunsOfARangeAreThoseOfItsElements) {
  const GptConfig odd{.layers = 1, .heads = 5, .width = 45, .context = 17, .vocab = 257, .tied = true};
  const ParamLayout layout(odd, WorldSize{1}, TensorCut{1, 3});
  for (const char* name : {"h.0.attn.c_attn.weight", "h.0.attn.c_proj.weight", "h.0.mlp.c_proj.weight",
                           "h.0.attn.c_attn.bias"}) {
    const ParamTensor& t = *layout.find(1, name);
    std::vector<std::int64_t> of_element(static_cast<std::size_t>(t.numel()));
    for_each_run(t, {0, t.numel()}, [&](Range run, std::int64_t at) {
      for (std::int64_t i = run.begin; i < run.end; ++i)
        of_element[static_cast<std::size_t>(i)] = at + i - run.begin;
    });
    for (const Range range : {Range{7, 7}, Range{3, 4}, Range{5, t.numel() - 11}}) {
      for_each_run(t, range, [&](Range run, std::int64_t at) {
        for (std::int64_t i = run.begin; i < run.end; ++i)
          EXPECT_EQ(of_element[static_cast<std::size_t>(i)], at + i - run.begin) << name;
      });
    }
  }
}

TEST(ParamLayout, TensorRanksHaveHeadsAndColumnsOfTheirOwn) {
  const auto sizes = [](const GptConfig& config, int ranks) {
    std::vector<std::array<std::int64_t, 3>> all;
    for (int rank = 0; rank < ranks; ++rank) {
      const ParamLayout layout(config, WorldSize{1}, TensorCut{rank, ranks});
      all.push_back({layout.heads().size(), layout.hidden().size(), layout.vocab_rows().size()});
    }
    return all;
  };
  using Sizes = std::vector<std::array<std::int64_t, 3>>;
  EXPECT_EQ(sizes(kXl, 2), (Sizes{{12, 3200, 25152}, {13, 3200, 25152}}));
  EXPECT_EQ(sizes({.layers = 1, .heads = 3, .width = 12, .context = 4, .vocab = 37}, 3),
            (Sizes{{1, 16, 40}, {1, 16, 44}, {1, 16, 44}}))
      << "fewer granules of 64 than ranks";
  EXPECT_EQ(sizes({.layers = 1, .heads = 4, .width = 128, .context = 4, .vocab = 257}, 4),
            (Sizes{{1, 128, 64}, {1, 128, 128}, {1, 128, 64}, {1, 128, 128}}));
}

// A tensor rank has the same heads of queries, keys and values in fused qkv.
TEST(ParamLayout, ATensorRankHasQueriesKeysAndValuesOfItsHeads) {
  const GptConfig config{.layers = 1, .heads = 3, .width = 12, .context = 4, .vocab = 37};
  const ParamLayout layout(config, WorldSize{1}, TensorCut{1, 3});
  std::vector<std::int64_t> begins;
  const ParamTensor& bias = *layout.find(1, "h.0.attn.c_attn.bias");
  for_each_run(bias, {0, bias.numel()}, [&](Range /*here*/, std::int64_t whole) { begins.push_back(whole); });
  EXPECT_EQ(begins, (std::vector<std::int64_t>{4, 12 + 4, 24 + 4}));
}

// The vocabulary's padding counts as a parameter of no rank.
TEST(ParamLayout, TensorRanksHaveTheModelsParametersBetweenThem) {
  const GptConfig config{.layers = 2, .heads = 6, .width = 48, .context = 16, .vocab = 257, .tied = false};
  const std::int64_t all = ParamLayout(config, WorldSize{1}).parameters().value();
  for (const int ranks : {2, 3, 6}) {
    std::int64_t sum = 0;
    for (int rank = 0; rank < ranks; ++rank)
      sum += ParamLayout(config, WorldSize{1}, TensorCut{rank, ranks}).parameters().value();
    const std::int64_t replicated = 2 * 6 * 48 + 16 * 48 + 2 * 48;  // norms, second biases, positions
    EXPECT_EQ(sum, all + (ranks - 1) * replicated) << ranks;
  }
}

TEST(ParamLayout, RefusesImpossibleShapes) {
  const auto refused = [](const GptConfig& c, int world, const TensorCut& cut = {}) {
    return test::input_error([&] { ParamLayout(c, WorldSize{world}, cut); });
  };
  test::expect_texts(
      {{refused({.heads = 3, .width = 128}, 1),
        "64|model: width is not a multiple of heads|choose a width that the heads divide evenly"},
       {refused({.layers = 0}, 1),
        "64|model: layers, heads, width, context and vocab must be at least 1|set all five in the workload's "
        "model section"},
       {refused({}, 0), "64|model: a layout needs a world of at least 1 rank|pass --world 1 or more"},
       {refused({}, 1), "no InputError"},
       {refused({.layers = 1, .heads = 1, .width = 1, .context = 1, .vocab = 1}, 1), "no InputError"},
       {refused(kSmall, 1, {0, 13}),
        "64|model.heads: 12 heads cannot be shared by 13 tensor ranks: each has at least one|at most 12 of "
        "them, or --set model.heads=13 or more that divide model.width"}});
}

}  // namespace
}  // namespace sc
