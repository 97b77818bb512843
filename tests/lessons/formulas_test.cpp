// Compares plans with the formulas that papers print, worked out here by hand for one model, and the legend
// with what plans print. A plan's text and its bytes come from one Formula (common/memory/formula.h) and
// cannot differ.
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "common/config/workload_table.h"
#include "common/run/surroundings.h"
#include "lessons/plans.h"

namespace sc::test {
namespace {

// Sizes that need no padding, on four ranks or with every matrix cut into quarters.
constexpr std::int64_t L = 8, d = 256, V = 512, C = 128, kHeads = 4, kTokens = 128;
constexpr std::int64_t kMatrices = 12 * d * d, kVectors = 13 * d;  // of a block
constexpr std::int64_t P = (V + C) * d + L * (kMatrices + kVectors) + 2 * d;

/// A lesson with its settings and number of ranks, in 16 bits.
struct Asked {
  std::string folder;
  std::vector<std::string> settings = {};
  int ranks = 4, rank = 0;
  bool tied = true;
  std::int64_t global = 8, validation_rows = 4;
};

MemoryPlan plan_of(const Asked& asked) {
  const StrategyPlans lesson = lesson_plans_of(asked.folder, asked.settings);
  RunShape shape{.workload = {}, .mesh = lesson.plans->mesh(WorldSize{asked.ranks})};
  shape.rank = Rank{asked.rank};
  shape.comm = CommBackend::mpi;
  Workload& w = shape.workload;
  w.model = {.layers = L, .heads = kHeads, .width = d, .context = C, .vocab = V, .tied = asked.tied};
  w.batch = {.sequence = kTokens, .global = asked.global, .micro = 1};
  w.data.validation_rows = asked.validation_rows;
  w.precision.dtype = DType::bf16;
  resolve_dtypes(w.precision);
  MemoryPlan plan = lesson.plans->memory_plan(shape);
  detail::plan_surroundings(shape, plan);
  return plan;
}

/// The bytes of all buffers with that name, at any place.
std::int64_t held(const MemoryPlan& plan, const std::string& name) {
  Bytes sum;
  for (const Buffer& buffer : plan.items())
    if (buffer.name == name) sum += buffer.bytes();
  return sum.value();
}

/// The elements of matrices and their biases in `t` parts, and of what every tensor rank has.
constexpr std::int64_t part_of(std::int64_t t) {
  return (V * d + L * (kMatrices + 7 * d)) / t + C * d + L * 6 * d + 2 * d;
}

// Model states take 2 bytes of parameters, 2 of gradients and 12 of optimizer states for each parameter; each
// lesson divides others of these. ZeRO: arXiv:1910.02054, figure 1; offload: 2101.06840 and 2104.07857;
// stages: 1811.06965; parts of matrices: 1909.08053.
TEST(Published, ModelStates) {
  struct Row {
    Asked asked;
    std::string params, grads, states;  // names, of states the end
    std::int64_t params_of, grads_of, states_of;
  };
  const std::int64_t two_blocks = 2 * (kMatrices + kVectors);
  const std::vector<Row> rows = {
      {{"00_one_device", {}, 1}, "params_full", "grads_full", "_full", P, P, P},
      {{"01_data_parallel"}, "params_full", "grads_full", "_full", P, P, P},
      {{"02_zero1"}, "params_full", "grads_full", "_shard", P, P, P / 4},
      {{"03_zero2"}, "params_full", "grads_shard", "_shard", P, P / 4, P / 4},
      {{"04_zero3"}, "params_shard", "grads_shard", "_shard", P / 4, P / 4, P / 4},
      {{"05_offload"}, "params_full", "grads_host", "_host", P, P / 4, P / 4},
      {{"06_infinity", {"grads_at=host"}}, "params_full", "grads_host", " on disk", P, P / 4, P / 4},
      {{"07_pipeline", {"split=uniform"}, 4, 1},
       "params_stage",
       "grads_stage",
       "_stage",
       two_blocks,
       two_blocks,
       two_blocks},
      {{"12_context_parallel"}, "params_full", "grads_full", "_full", P, P, P},
      {{"10_tensor_parallel"}, "params_part", "grads_part", "_part", part_of(4), part_of(4), part_of(4)},
      {{"11_combined", {"mesh=1x2x2"}},
       "params_stage",
       "grads_stage",
       "_shard",
       part_of(2),
       part_of(2),
       part_of(2) / 2},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.asked.folder);
    const MemoryPlan plan = plan_of(row.asked);
    EXPECT_EQ(held(plan, row.params), 2 * row.params_of);
    EXPECT_EQ(held(plan, row.grads), 2 * row.grads_of);
    for (const char* state : {"master", "momentum", "variance"})
      EXPECT_EQ(held(plan, state + row.states), 4 * row.states_of) << state;
  }
}

// PipeDream's stage s of S holds S - s versions of its weights: arXiv:1806.03377.
TEST(Published, StashedWeights) {
  const std::int64_t first = 2 * (kMatrices + kVectors) + (V + C) * d;
  EXPECT_EQ(held(plan_of({"08_weight_versions", {"split=uniform"}, 4, 0, false}), "params_stage, older"),
            3 * 2 * first);
  EXPECT_EQ(held(plan_of({"08_weight_versions", {"split=uniform"}, 4, 3, false}), "params_stage, older"), 0);
}

// A block keeps 15 d numbers per token without the scores of attention, and with sequence parallelism a t-th
// of all but the norms, which are gathered again (arXiv:2205.05198, for 16-bit numbers); and four statistics
// of the norms and one of each head in fp32.
TEST(Published, ActivationsOfABlock) {
  const MemoryPlan one = plan_of({"00_one_device", {}, 1}), part = plan_of({"10_tensor_parallel"});
  EXPECT_EQ(held(one, "saved"), L * kTokens * (2 * 15 * d + 4 * (4 + kHeads)));
  EXPECT_EQ(held(part, "saved"), L * kTokens * (2 * 13 * d + 4 * (4 + kHeads)) / 4);
  EXPECT_EQ(held(plan_of({"12_context_parallel"}), "saved"), held(one, "saved") / 4);
  EXPECT_EQ(held(one, "x"), 2 * (L + 1) * kTokens * d);
  EXPECT_EQ(held(part, "x"), 2 * (L + 1) * kTokens * d / 4);
}

// A symbol of the legend that nothing prints would be a lie; one that the legend lacks does not compile.
TEST(Legend, HasNoSymbolThatNoPlanPrints) {
  std::set<std::string> printed = {"copied", "pending"};  // of a checkpoint's copy, in a job's plan
  for (const Asked& asked : std::vector<Asked>{
           {"00_one_device", {"virtual_ranks=2", "tied_sum=split"}, 1},
           {"00_one_device", {"tensor_ranks=2", "lanes=2"}, 1},
           {"03_zero2", {"bucket=1000"}},
           {"04_zero3", {"persist_below=300"}},
           {"04_zero3", {"shard_ranks=2"}},
           {"05_offload", {"resident=3"}, 4, 0, true, 4, 1000},
           {"06_infinity"},
           {"07_pipeline", {"schedule=zb_h1"}},
           {"08_weight_versions", {}, 4, 0, false},
           {"10_tensor_parallel"},
           {"12_context_parallel"},
       }) {
    static const std::regex kWord("\\w+");
    const MemoryPlan plan = plan_of(asked);
    for (const Buffer& buffer : plan.items()) {
      const std::string text = buffer.formula();
      for (std::sregex_iterator word(text.begin(), text.end(), kWord), end; word != end; ++word)
        printed.insert(word->str());
    }
  }
  for (const FormulaSymbol& symbol : kFormulaSymbols)
    EXPECT_TRUE(printed.contains(symbol.symbol)) << symbol.symbol;
}

}  // namespace
}  // namespace sc::test
