// The flat layout: published parameter counts, exact persistent sets, alignment, slices and decay ranges.
#include "common/model/param_layout.h"

#include <gtest/gtest.h>

#include <set>

#include "common/base/check.h"

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
  EXPECT_EQ(parameters(kSmall), 124439808);
  EXPECT_EQ(parameters(kMedium), 354823168);
  EXPECT_EQ(parameters(kLarge), 774030080);
  EXPECT_EQ(parameters(kXl), 1557611200);
  GptConfig untied = kSmall;
  untied.tied = false;
  EXPECT_EQ(parameters(untied), 124439808 + 50257 * 768);
}

// The check values of ZeRO-3's stage3_param_persistence_threshold.
TEST(ParamLayout, PersistsTensorsBelowTheThreshold) {
  EXPECT_EQ(persistent(kLarge, 100'000), (Count{290, 601600}));
  EXPECT_EQ(persistent(kMedium, 100'000), (Count{194, 321536}));
  EXPECT_EQ(persistent(kSmall, 100'000), (Count{98, 121344}));
  EXPECT_EQ(persistent(kSmall, 1'000'000), (Count{111, 7985664}));
  EXPECT_EQ(persistent(kSmall, 0), (Count{0, 0}));
  EXPECT_EQ(persistent(kSmall, 768), (Count{0, 0})) << "the threshold itself is not below";
  EXPECT_EQ(persistent(kSmall, 769).tensors, 74);  // 6 of width d a block, 2 of ln_f
}

TEST(ParamLayout, NamesAndShapesFollowHuggingFace) {
  const GptConfig c{.layers = 4, .heads = 4, .width = 128, .context = 256, .vocab = 257, .tied = false};
  const ParamLayout layout(c, WorldSize{2});
  ASSERT_EQ(layout.num_units(), 6);
  EXPECT_EQ(layout.num_blocks(), 4);
  EXPECT_EQ(layout.last_unit(), 5);
  EXPECT_EQ(layout.find(0, "wte.weight")->shape, (std::vector<std::int64_t>{384, 128}));
  EXPECT_EQ(layout.find(0, "wpe.weight")->shape, (std::vector<std::int64_t>{256, 128}));
  EXPECT_EQ(layout.find(5, "lm_head.weight")->shape, (std::vector<std::int64_t>{384, 128}));
  EXPECT_EQ(layout.find(0, "lm_head.weight"), nullptr);
  const std::vector<std::string> names = {
      "h.3.ln_1.weight",        "h.3.ln_1.bias",        "h.3.attn.c_attn.weight", "h.3.attn.c_attn.bias",
      "h.3.attn.c_proj.weight", "h.3.attn.c_proj.bias", "h.3.ln_2.weight",        "h.3.ln_2.bias",
      "h.3.mlp.c_fc.weight",    "h.3.mlp.c_fc.bias",    "h.3.mlp.c_proj.weight",  "h.3.mlp.c_proj.bias"};
  ASSERT_EQ(layout.unit(4).tensors.size(), names.size());
  for (std::size_t i = 0; i < names.size(); ++i) EXPECT_EQ(layout.unit(4).tensors[i].name, names[i]);
  EXPECT_EQ(layout.find(4, "h.3.mlp.c_fc.weight")->shape, (std::vector<std::int64_t>{512, 128}));
  EXPECT_EQ(layout.find(4, "h.3.mlp.c_proj.weight")->shape, (std::vector<std::int64_t>{128, 512}));
  EXPECT_EQ(layout.find(4, "h.3.attn.c_attn.weight")->shape, (std::vector<std::int64_t>{384, 128}));
  EXPECT_EQ(layout.find(4, "h.2.ln_1.weight"), nullptr);
}

// A width that is no multiple of the alignment, worlds that do not divide anything.
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

TEST(ParamLayout, RefusesImpossibleShapes) {
  const auto code = [](const GptConfig& c, int world) {
    try {
      ParamLayout(c, WorldSize{world});
    } catch (const InputError& e) {
      return e.code();
    }
    return ExitCode::ok;
  };
  EXPECT_EQ(code({.heads = 3, .width = 128}, 1), ExitCode::usage);
  EXPECT_EQ(code({.layers = 0}, 1), ExitCode::usage);
  EXPECT_EQ(code({}, 0), ExitCode::usage);
  EXPECT_EQ(code({}, 1), ExitCode::ok);
}

}  // namespace
}  // namespace sc
