// Tests `choose`: which lessons fit, by their plans compared with counts by hand; how long a step takes; what
// the command line refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <tuple>

#include "common/base/check.h"
#include "common/base/text.h"
#include "common/config/resolve.h"
#include "common/run/run_shape.h"
#include "lessons/choose/report.h"
#include "tests/support/answers.h"

namespace sc::choose {
namespace {

const Measured& measured() {
  static const Measured kMeasured = Measured::read("lessons/choose/measured.json");
  return kMeasured;
}

// A workload of four blocks of width 128, with 12 rows of 128 tokens per step.
Workload tiny() {
  Workload workload;
  workload.model.tied = false;
  return workload;
}

Machine machine(std::int64_t gpus, Bytes memory) {
  Machine machine{.gpu = gpu_named("H200"), .gpus = gpus, .memory = memory};
  machine.host_memory = Bytes(1'000'000'000'000), machine.disk = 4e9;
  return machine;
}

Workload from_file(const std::string& file, std::int64_t rows) {
  ConfigSources sources;
  sources.workload_file = file;
  Workload w = resolve(sources, {}).workload;
  w.batch.global = rows;
  return w;
}

const Row& row_of(const std::vector<Row>& rows, const std::string& folder) {
  return *std::ranges::find_if(rows, [&](const Row& row) { return row.candidate.plans.folder == folder; });
}

Bytes planned(const Row& row, std::int64_t micro) {
  RunShape shape = row.shape;
  shape.workload.batch.micro = micro;
  return detail::plans_of_world(*row.candidate.plans.plans, shape).front().total() + kBesideThePlan;
}

TEST(Choose, SharesOfThePeakAreOneGpus) {
  Measured more = measured();
  MeasuredStep other = *std::ranges::find_if(more.steps, [](const MeasuredStep& step) {
    return step.lesson == "00_one_device" && step.workload.precision.dtype == DType::bf16 &&
           step.workload.batch.micro == step.workload.batch.global;
  });
  other.seconds *= 2;
  const Machine h200 = machine(1, Bytes(100'000'000'000));
  const auto flops = [&](const std::string& gpu) {
    other.gpu = gpu, more.steps.push_back(other);
    const double found = rates_of(h200, more, DType::bf16).flops;
    more.steps.pop_back();
    return found;
  };
  const double without = rates_of(h200, measured(), DType::bf16).flops;
  EXPECT_NE(flops(more.gpu), without);
  EXPECT_EQ(flops("H100"), without);
}

TEST(Choose, TakesTheLargestMicroBatchThatFits) {
  const Row all = row_of(search(machine(2, Bytes(100'000'000'000)), measured(), tiny()), "02_zero1");
  ASSERT_TRUE(all.fits);
  EXPECT_EQ(all.shape.workload.batch.micro, 6);  // 12 rows, 2 ranks
  EXPECT_EQ(all.shape.workload.activations, Activations::keep);

  const Bytes three = planned(all, 3);
  EXPECT_LT(three, planned(all, 6));
  Machine exact = machine(2, three);
  const Row fits = row_of(search(exact, measured(), tiny()), "02_zero1");
  EXPECT_TRUE(fits.fits);
  EXPECT_LE(fits.needs.device, three);
  exact.memory = three - Bytes(1);
  const Row less = row_of(search(exact, measured(), tiny()), "02_zero1");
  EXPECT_TRUE(less.fits);
  EXPECT_TRUE(less.shape.workload.batch.micro < 3 || less.shape.workload.activations != Activations::keep);
}

TEST(Choose, TheHostIsSharedByAllRanks) {
  Machine host = machine(4, Bytes(100'000'000'000));
  const Row row = row_of(search(host, measured(), tiny()), "05_offload");
  ASSERT_TRUE(row.fits);
  const MemoryPlan one = detail::plans_of_world(*row.candidate.plans.plans, row.shape).front();
  EXPECT_EQ(row.needs.host, 4 * (one.total(Place::pinned) + one.total(Place::host)));
  host.host_memory = Bytes(1'000'000);
  const Row refused = row_of(search(host, measured(), tiny()), "05_offload");
  EXPECT_FALSE(refused.fits);
  EXPECT_NE(refused.reason.find("in the host's memory, 1.00 MB there"), std::string::npos) << refused.reason;
}

// On one GPU: 1, 2 and 4 of six units resident, early updates without and with them. Only the best of these
// is shown.
TEST(Choose, TheBestOfWhatGoesByDegreesIsShown) {
  const std::vector<Row> rows = search(machine(1, Bytes(100'000'000'000)), measured(), tiny());
  std::vector<std::vector<std::string>> tried;
  for (const Candidate& candidate : residents(1, tiny().model))
    if (candidate.plans.folder == "05_offload") tried.push_back(candidate.plans.settings);
  EXPECT_EQ(tried, (std::vector<std::vector<std::string>>{{"resident=1"},
                                                          {"resident=2"},
                                                          {"resident=4"},
                                                          {"update=early"},
                                                          {"update=early", "resident=1"},
                                                          {"update=early", "resident=2"},
                                                          {"update=early", "resident=4"}}));
  const Row* best = nullptr;
  for (const Row& row : rows)
    if (row.candidate.kind == "05_offload" && (best == nullptr || row.seconds < best->seconds)) best = &row;
  for (const std::vector<Row>& shown : {best_of_kinds(rows), nearest(rows, rows.size())}) {
    const auto is_one = [](const Row& row) { return row.candidate.kind == "05_offload"; };
    EXPECT_EQ(std::ranges::count_if(shown, is_one), 1);
    EXPECT_EQ(std::ranges::find_if(shown, is_one)->seconds, best->seconds);
  }
  // A GPU with too little memory for lesson 00 is advised the one that the tables show.
  const Workload w = from_file("configs/gpt_7b.json", 192);
  const std::vector<Row> large = search(machine(1, Bytes(80'000'000'000)), measured(), w);
  const Row* advised = sc::choose::best(large);
  ASSERT_NE(advised, nullptr);
  ASSERT_EQ(advised->candidate.kind, "05_offload");
  EXPECT_TRUE(std::ranges::any_of(best_of_kinds(large), [&](const Row& row) {
    return row.candidate.plans.settings == advised->candidate.plans.settings;
  }));
}

// If everything fits, no host is advised: its memory is no faster than the GPU's.
TEST(Choose, NoHostIsAdvisedWhereOneDeviceIsAsQuick) {
  const std::vector<Row> rows =
      search(machine(1, Bytes(141'000'000'000)), measured(), from_file("configs/gpt2_355m.json", 16));
  ASSERT_NE(best(rows), nullptr);
  EXPECT_EQ(best(rows)->candidate.plans.folder, "00_one_device");
}

TEST(Choose, NothingIsDropped) {
  Machine bare = machine(4, Bytes(100'000'000'000));
  bare.host_memory.reset(), bare.disk.reset();
  for (const std::int64_t gpus : {1, 2, 3, 4, 8}) {
    bare.gpus = gpus;
    const std::vector<Row> rows = search(bare, measured(), tiny());
    EXPECT_EQ(rows.size(), candidates(gpus).size() + groupings(gpus, gpus, tiny().model).size() +
                               residents(gpus, tiny().model).size());
    EXPECT_LE(best_of_kinds(rows).size(), 19U + 5U + 4U);
    for (const Row& row : rows) {
      EXPECT_NE(row.fits, !row.reason.empty()) << row.candidate.plans.folder;
      EXPECT_EQ(row.candidate.host, row.reason.find("give --host-memory") != std::string::npos);
    }
  }
}

Machine nodes(std::int64_t gpus, std::int64_t node, double node_link) {
  Machine m = machine(gpus, Bytes(80'000'000'000));
  m.host_memory.reset(), m.disk.reset();
  m.gpus_per_node = node, m.node_link = node_link;
  return m;
}

Bytes most_of_all_ranks(const Row& row) {
  Bytes most;
  for (const MemoryPlan& plan : detail::plans_of_world(*row.candidate.plans.plans, row.shape))
    most = std::max(most, plan.total());
  return most + kBesideThePlan;
}

// A question that is asked of some ranks has the same answer for all of them; 25 heads are shared unevenly.
TEST(ChooseGroups, TheRanksThatHoldMostAreAsked) {
  for (const auto& [gpus, file] : {std::pair<std::int64_t, const char*>{64, "configs/gpt2_1558m.json"},
                                   {48, "configs/gpt2_355m.json"}}) {
    std::int64_t many = 0;
    for (const Row& row : search(nodes(gpus, 8, 25e9), measured(), from_file(file, gpus))) {
      if (row.candidate.plans.folder != "11_combined" || !row.fits) continue;
      EXPECT_EQ(row.needs.device, most_of_all_ranks(row)) << row.candidate.plans.settings.front();
      many += row.shape.mesh.size(Axis::stages) * row.shape.mesh.size(Axis::tensor) > 32 ? 1 : 0;
    }
    EXPECT_GT(many, 3);
  }
}

TEST(ChooseGroups, OneRowComputedAgainHoldsLeast) {
  Workload w = tiny();
  w.model.heads = 4, w.batch.global = 16;
  for (const Candidate& candidate : groupings(8, 8, w.model)) {
    if (!candidate.least_is_known) continue;
    RunShape shape = shape_on(candidate.plans, 8, w);
    Bytes least(INT64_MAX), last;
    for (const Activations activations :
         {Activations::keep, Activations::recompute_gelu, Activations::recompute})
      for (std::int64_t micro = 16 / shape.mesh.size(Axis::data); micro >= 1; micro /= 2) {
        shape.workload.activations = activations, shape.workload.batch.micro = micro;
        try {
          last = Bytes(0);
          for (const MemoryPlan& plan : detail::plans_of_world(*candidate.plans.plans, shape))
            last = std::max(last, plan.total());
          least = std::min(least, last);
        } catch (const InputError&) {  // interleaved wants as many micro-batches as stages
        }
      }
    EXPECT_EQ(last, least) << candidate.plans.settings.front();
  }
}

// Tensor groups lie in a node and stages have a block each; no mesh is tried twice, none is left out.
TEST(ChooseGroups, EveryMeshThatFitsIsTried) {
  GptConfig model = tiny().model;
  model.heads = 8, model.layers = 16;
  std::set<std::vector<std::string>> seen;
  std::map<std::string, int> kinds;
  for (const Candidate& candidate : groupings(16, 4, model)) {
    EXPECT_TRUE(seen.insert(candidate.plans.settings).second);
    ++kinds[candidate.kind];
    if (candidate.plans.folder != "11_combined") continue;
    const Mesh mesh = candidate.plans.plans->mesh(WorldSize{16});
    EXPECT_TRUE(mesh.is_whole());
    EXPECT_LE(mesh.size(Axis::tensor), 4);
  }
  // The counts are those of groups of 2, 4, 8; of 1x8x2, 1x4x4; of 8x2x1 with one chunk, with a longer
  // warm-up, with two chunks; of 4x4x1 and 2x8x1 with four too; of 8x1x2, 4x1x4; and of 4x2x2, 2x4x2, 2x2x4.
  EXPECT_EQ(kinds, (std::map<std::string, int>{{"hybrid sharding", 3},
                                               {"data x tensor", 2},
                                               {"stages x data", 3 + 4 + 4},
                                               {"stages x tensor", 3 + 4},
                                               {"stages x data x tensor", 4 + 4 + 4}}));
  model.heads = 2;
  for (const Candidate& candidate : groupings(16, 4, model))
    EXPECT_LE(candidate.plans.plans->mesh(WorldSize{16}).size(Axis::tensor), 2);
}

// Two nodes of four. Among equally quick candidates the one that sends least over the slow link is taken, and
// the report says why a row is slow.
TEST(ChooseGroups, ASlowLinkBetweenNodes) {
  const Machine slow = nodes(8, 4, 1e9);
  const std::vector<Row> rows = search(slow, measured(), from_file("configs/gpt2_1558m.json", 512));
  const Row* chosen = best(rows);
  ASSERT_NE(chosen, nullptr);
  EXPECT_LE(chosen->shape.mesh.size(Axis::tensor), 4);
  EXPECT_GT(chosen->to_nodes, Bytes(0));
  for (const Row& row : rows)
    if (row.fits && !row.candidate.late &&
        row.tokens_per_second() >= (1 - kAsGood) * chosen->tokens_per_second()) {
      EXPECT_GE(row.to_nodes, chosen->to_nodes) << row.candidate.plans.folder;
    }
  // Two stages meet between the nodes, and one more forward hides the time of their messages.
  EXPECT_EQ(chosen->candidate.plans.settings, (std::vector<std::string>{"mesh=2x4x1", "warmup=1"}));
  const Row& across = row_of(rows, "10_tensor_parallel");  // a tensor group of all eight
  EXPECT_GT(across.seconds, 20 * chosen->seconds);
  const std::string why = waits_for(across, rates_of(slow, measured(), DType::bf16));
  EXPECT_NE(why.find("% waits for the link between nodes: "), std::string::npos) << why;
}

// Host memory is for what GPUs cannot keep as quickly, whatever it saves between nodes.
TEST(ChooseGroups, StatesStayOnTheGpusAmongEquals) {
  Machine machine = nodes(8, 4, 1e9);
  machine.host_memory = Bytes(4'000'000'000'000), machine.disk = 4e9;
  const std::vector<Row> rows = search(machine, measured(), from_file("configs/gpt2_1558m.json", 512));
  std::vector<Row> two = {row_of(rows, "05_offload"), row_of(rows, "04_zero3")};
  for (Row& row : two) row.fits = true, row.seconds = 1;
  two[0].to_nodes = Bytes(1), two[1].to_nodes = Bytes(2);
  EXPECT_EQ(best(two), &two[1]);
  two[1].seconds = 1.1;
  EXPECT_EQ(best(two), &two[0]);
  for (const Row& row : rows) EXPECT_TRUE(row.candidate.host || !row.candidate.disk);
}

// The four ranks of a node share a ring's edge to the other node; a message goes there if the next stage, or
// the one before, is there.
TEST(ChooseGroups, BytesBetweenNodes) {
  Workload w = tiny();
  w.precision = {.dtype = DType::bf16, .grad_dtype = DType::bf16, .reduce_dtype = DType::bf16};
  w.batch.global = 16, w.batch.micro = 2;
  const Rates rates = rates_of(nodes(8, 4, 1e9), measured(), DType::bf16);
  const auto bytes = [&](const std::string& folder, const std::vector<std::string>& settings, int rank) {
    const Candidate candidate = candidate_of(folder, settings);
    RunShape shape = shape_on(candidate.plans, 8, w);
    shape.rank = Rank{rank};
    return node_bytes(shape, candidate.plans.plans->comm_plan(shape), rates);
  };
  const auto padded = [&](int slices) {
    return static_cast<double>(ParamLayout(w.model, WorldSize{slices}).arena_size().value());
  };
  constexpr double kNumbers = 100;
  EXPECT_NEAR(bytes("01_data_parallel", {}, 0), 2 * 7.0 / 8 * 2 * padded(8) / 4, kNumbers);
  // Lesson 04's slice is a fourth of the gradients, summed over two ranks, one of which is in the other node.
  EXPECT_NEAR(bytes("04_zero3", {"shard_ranks=4"}, 0), 2 * padded(4) / 4, kNumbers);
  const double rows = 16 / 2, message = rows * 128 * 128 * 2;     // of a replica in a step
  const std::vector<double> expected = {0, message, message, 0};  // 0-1, 2-3 are the first two stages
  for (int stage = 0; stage < 4; ++stage)
    EXPECT_NEAR(bytes("11_combined", {"mesh=4x2x1"}, 2 * stage), expected[static_cast<std::size_t>(stage)],
                kNumbers);
}

// A mesh with one axis takes as long as the lesson of that axis.
TEST(ChooseGroups, AMeshOfOneAxisTakesWhatItsLessonDoes) {
  const Workload w = from_file("configs/gpt2_355m.json", 32);
  const Rates rates = rates_of(machine(4, Bytes(80'000'000'000)), measured(), DType::bf16);
  const auto seconds = [&](const std::string& folder, const std::vector<std::string>& settings) {
    const Candidate candidate = candidate_of(folder, settings);
    return candidate.seconds(shape_on(candidate.plans, 4, w), rates);
  };
  EXPECT_EQ(seconds("11_combined", {"mesh=4x1x1"}), seconds("07_pipeline", {"states=sharded"}));
  EXPECT_NEAR(seconds("11_combined", {"mesh=1x1x4"}) / seconds("10_tensor_parallel", {}), 1, 0.01);
  EXPECT_NEAR(seconds("11_combined", {"mesh=1x4x1"}) / seconds("02_zero1", {}), 1, 0.05);
}

TEST(ChooseGroups, AThousandGpus) {
  const std::vector<Row> rows =
      search(nodes(1024, 8, 50e9), measured(), from_file("configs/gpt_70b.json", 1024));
  EXPECT_GT(rows.size(), 60U);
  ASSERT_NE(best(rows), nullptr);
  EXPECT_EQ(nearest(rows, 10).size(), 10U);
}

TEST(Choose, WhatRefusesAShapeSaysWhy) {
  Workload tied = tiny();
  tied.model.tied = true;
  const std::vector<Row> rows = search(machine(8, Bytes(100'000'000'000)), measured(), tied);
  test::expect_answers([&](const std::string& folder) { return row_of(rows, folder).reason; },
                       {{"08_weight_versions", "cannot: model.tied: ..."},
                        {"07_pipeline", "cannot: ..."},  // 8 stages, 4 blocks
                        {"01_data_parallel", "cannot: batch.global=12 rows cannot be shared evenly by 8"}});
}

TEST(Choose, WhereNothingFitsItNamesWhatWould) {
  const Machine small = machine(1, kBesideThePlan + Bytes(2'000'000));
  EXPECT_EQ(best(search(small, measured(), tiny())), nullptr);
  const std::vector<std::string> fixes = nearest_that_works(small, measured(), tiny());
  ASSERT_FALSE(fixes.empty());
  EXPECT_EQ(fixes.back().substr(0, 13), "--memory 2GB:");
}

TEST(Choose, AdviceTrainsAsOneDeviceDoesAndIsTheSameEveryTime) {
  const Machine eight = machine(2, Bytes(100'000'000'000));
  const std::vector<Row> rows = search(eight, measured(), tiny());
  const Row* chosen = best(rows);
  ASSERT_NE(chosen, nullptr);
  EXPECT_FALSE(chosen->candidate.late);
  for (const Row& row : rows) {
    if (!row.fits || row.candidate.late) continue;
    EXPECT_LE((1 - kAsGood) * row.tokens_per_second(), chosen->tokens_per_second());
  }
  Options options;
  options.machine = eight, options.workload = tiny();
  EXPECT_EQ(report_json(options, measured(), rows),
            report_json(options, measured(), search(eight, measured(), tiny())));
  const std::string machine = nlohmann::json::parse(report_json(options, measured(), rows))["machine"];
  EXPECT_EQ(report(options, measured(), rows).substr(0, machine.size()), machine)
      << "in both, how good they are";
}

// No rate has more than two digits, and each says how far it may be off, or that nobody knows.
TEST(Choose, RatesHaveTwoDigitsAndSayHowSureTheyAre) {
  const auto said = [](const char* gpu, std::int64_t gpus, std::int64_t rows) {
    Options options;
    options.machine = machine(gpus, Bytes(24'000'000'000)), options.machine.gpu = gpu_named(gpu);
    options.workload = from_file("configs/gpt2_355m.json", rows);
    return report(options, measured(), search(options.machine, measured(), options.workload));
  };
  for (const auto& [text, sure] : {std::pair(said("H200", 2, 32), std::string("(+-28 %):")),
                                   {said("H200", 8, 32), "(+-28 % on up to 4 GPUs; untested beyond):"},
                                   {said("RTX4090", 2, 32), "(untested on such GPUs):"}}) {
    EXPECT_NE(text.find("tokens a second " + sure), std::string::npos) << text;
    const std::regex rate(R"(([\d,]+) tokens(/s| a second))");
    std::int64_t rates = 0;
    for (std::sregex_iterator each(text.begin(), text.end(), rate), end; each != end; ++each, ++rates) {
      std::string digits = (*each)[1];
      std::erase(digits, ',');
      digits.resize(digits.find_last_not_of('0') + 1);
      EXPECT_LE(digits.size(), 2U) << each->str();
    }
    EXPECT_GT(rates, 2);
  }
}

// Three blocks of width 64 with two heads, 128 tokens in the vocabulary, an untied head; four rows of 16
// tokens per step, in 16 bits. All bytes below are counted by hand from these, with the symbols of
// docs/glossary.md.
Workload counted() {
  Workload w;
  w.model = {.layers = 3, .heads = 2, .width = 64, .context = 16, .vocab = 128, .tied = false};
  w.batch = {.sequence = 16, .global = 4, .micro = 1};
  w.precision = {.dtype = DType::bf16, .grad_dtype = DType::bf16, .reduce_dtype = DType::bf16};
  w.data.validation_rows = 1;
  return w;
}
// The elements of units: wte 128 x 64 and wpe 16 x 64; a block 12 d^2 + 13 d; ln_f 2 d and the head 128 x 64.
// On two ranks each is padded to a multiple of 128.
constexpr std::int64_t kFirst = 9216, kBlock = 49984, kBlockOf2 = 50048, kLast = 8320;
constexpr std::int64_t kP1 = kFirst + 3 * kBlock + kLast, kP2 = kFirst + 3 * kBlockOf2 + kLast;
// Whole gradients, or gathered parameters, that are alive at a time: the first unit, the last, two blocks.
constexpr std::int64_t kAlive = 2 * (kFirst + 2 * kBlockOf2 + kLast);
constexpr std::int64_t kStage0 = kFirst + 2 * kBlock, kStage0Of2 = kFirst + 2 * kBlockOf2;
constexpr std::int64_t kScratch = 1 << 20;  // 4 (N - 1) x 256 KiB for two ranks

// The bytes of activations for n tokens of a micro-batch; a slab is 2 n d = 128 n. A block saves 15 slabs and
// 4 n (4 + H); its workspace has 8 and a temporary, and 4 x 13 d of vectors' gradients; the head's a slab, 8
// n of statistics, and 2 n V of logits.
constexpr std::int64_t blocks_save(std::int64_t blocks, std::int64_t n) {
  return blocks * (15 * 128 + 4 * (4 + 2)) * n;
}
constexpr std::int64_t workspace(std::int64_t n) { return 9 * 128 * n + 4 * 13 * 64; }
constexpr std::int64_t of_head(std::int64_t n) { return 128 * n + 8 * n + 2 * 128 * n; }
// The activations of the whole model: x at four places, two gradients of x.
constexpr std::int64_t whole(std::int64_t n) {
  return (4 + 2) * 128 * n + blocks_save(3, n) + workspace(n) + of_head(n);
}
// What a step needs besides: four sums, four scalars, the scale, and r rows of tokens and of targets.
constexpr std::int64_t step(std::int64_t r) { return 4 * 8 + 20 + 4 + 2 * 8 * 16 * r; }
constexpr std::int64_t staging(std::int64_t r) { return 32 * 16 * r; }

// In lesson 06 a piece is a unit's slice: a block has three, of 25024 elements. States take 12 bytes per
// element, up to whole blocks of 4096: 57344 for the first unit, 303104 for a block, 53248 for the last unit.
constexpr std::int64_t kStates = 57344 + 3 * 303104 + 53248, kWindow = 4 * 303104, kPieces = 4 * 25024;
// Parameters on disk take 2 bytes per element, up to whole blocks of 4096: 12288, 53248, 12288.
constexpr std::int64_t kParams = 12288 + 3 * 53248 + 12288;

// With two tensor ranks the first unit has 64 rows of wte and all of wpe; a block has 4 a d + 3 a + 2 m d + m
// cut elements, up to a multiple of 64, and 6 d whole ones, with one head of 32 (a) and 128 columns of the
// MLP (m); the last unit has the last 64 rows of the head, and ln_f.
constexpr std::int64_t kPart = 64 * 64 + 16 * 64 + 3 * (24832 + 6 * 64) + 64 * 64 + 2 * 64;
// The activations of a tensor rank for n tokens of a micro-batch, half of them its own: x at four places; of
// three blocks mid (a slab's half), qkv, att (4 a), fc, gelu (2 m), statistics and lse, and two slabs of
// norms if they are kept; four gathered slabs, a sum; gradients of qkv, att, fc and vectors; logits of 64
// columns, statistics of n / 2, n and 2 n tokens.
constexpr std::int64_t part(std::int64_t n, bool kept) {
  return 4 * 64 * n + 3 * (64 * n + 2 * n * (4 * 32 + 2 * 128) + 4 * (2 * n + n) + (kept ? 2 * 128 * n : 0)) +
         4 * 128 * n + 64 * n + 2 * n * (128 + 4 * 32) + 4 * (6 * 64 + 3 * 32 + 128) + 2 * 64 * n +
         4 * (n + 2 * n * 3);
}
constexpr std::int64_t kHashes = 8 * 6 * 3;  // of five units and the tokens, of this rank and of both

struct Counted {
  std::int64_t gpus;
  std::string folder;
  std::vector<std::string> settings;
  std::int64_t micro;               // rows
  std::int64_t device, host, disk;  // of a GPU, without what is beside the plan; of all ranks
};
const std::vector<Counted> kCounted = {
    {1, "00_one_device", {}, 4, 16 * kP1 + whole(64) + step(4) + 32, staging(4), 0},
    {2, "01_data_parallel", {}, 2, 16 * kP2 + whole(32) + step(2) + 24, 2 * (staging(2) + kScratch), 0},
    {2, "02_zero1", {}, 2, (4 + 6) * kP2 + whole(32) + step(2), 2 * (staging(2) + kScratch), 0},
    {2, "03_zero2", {}, 2, (2 + 1 + 6) * kP2 + kAlive + whole(32) + step(2), 2 * (staging(2) + kScratch), 0},
    {2, "04_zero3", {}, 2, 8 * kP2 + 2 * kAlive + whole(32) + step(2), 2 * (staging(2) + kScratch), 0},
    // Squares and scalars take 8 (4 (L + 2) + 4) bytes. On the host lie 64 bytes of scalars, and gradients,
    // parameters and states of P / 2 elements: 2, 2 and 12 bytes each.
    {2,
     "05_offload",
     {},
     2,
     2 * kP2 + kAlive + 192 + whole(32) + step(2),
     2 * (64 + (1 + 1 + 6) * kP2 + staging(2) + kScratch),
     0},
    {2,
     "05_offload",
     {"update=delayed"},
     2,
     2 * kP2 + kAlive + 192 + whole(32) + step(2),
     2 * (64 + (2 + 1 + 6) * kP2 + staging(2) + kScratch),
     0},
    {2,
     "05_offload",
     {"parameters=sharded"},
     2,
     kP2 + 2 * kAlive + 192 + whole(32) + step(2),
     2 * (64 + (1 + 1 + 6) * kP2 + staging(2) + kScratch),
     0},
    {2,
     "05_offload",
     {"parameters=sharded", "update=delayed"},
     2,
     kP2 + 2 * kAlive + 192 + whole(32) + step(2),
     2 * (64 + (2 + 1 + 6) * kP2 + staging(2) + kScratch),
     0},
    // On the device stay a slice of all gradients, and for full gradients a slice in which later sums arrive.
    // On the host lie the windows: states, gradients, parameters.
    {2,
     "06_infinity",
     {},
     2,
     (2 + 1) * kP2 + kAlive + kAlive / 2 + 192 + whole(32) + step(2),
     2 * (64 + kWindow + 2 * kPieces + 2 * kPieces + staging(2) + kScratch),
     2 * kStates},
    {2,
     "06_infinity",
     {"update=delayed", "grads_at=host"},
     2,
     2 * kP2 + kAlive + 192 + whole(32) + step(2),
     2 * (64 + kWindow + 2 * kP2 + kP2 + staging(2) + kScratch),
     2 * kStates},
    {2,
     "06_infinity",
     {"parameters=sharded", "params_at=disk"},
     2,
     kAlive + kP2 + kAlive + kAlive / 2 + 192 + whole(32) + step(2),
     2 * (64 + kWindow + 2 * kPieces + 2 * 4 * 53248 + staging(2) + kScratch),
     2 * (kStates + kParams)},
    // The first stage has two blocks and holds the most: one micro-batch of four rows, its input, two
    // outputs; two gradients of x, and the one that it receives.
    {2,
     "07_pipeline",
     {},
     4,
     16 * kStage0 + (3 + 3) * 128 * 64 + blocks_save(2, 64) + workspace(64) + step(4),
     2 * (staging(4) + kScratch),
     0},
    // Three micro-batches of one row are under way on the first stage; two gradients are received ahead.
    {2,
     "07_pipeline",
     {"warmup=1"},
     1,
     16 * kStage0 + (3 * 2 + 3 + 2 + 2) * 128 * 16 + blocks_save(3 * 2, 16) + workspace(16) + step(4),
     2 * (staging(4) + kScratch),
     0},
    // Replicas have half of the states each, and there are a group of two and the world of four.
    {4,
     "07_pipeline",
     {"replicas=2", "states=sharded"},
     2,
     (4 + 6) * kStage0Of2 + (3 + 3) * 128 * 32 + blocks_save(2, 32) + workspace(32) + step(2),
     4 * (staging(2) + kScratch + 3 * kScratch),
     0},
    // Two micro-batches of two rows are under way on the first stage, with one older version of the
    // parameters. Numbers in flight take 280 and 120 bytes, and there are a divisor, tokens of two
    // micro-batches, and two groups of all ranks.
    {2,
     "08_weight_versions",
     {},
     2,
     (16 + 2) * kStage0 + (2 * 2 + 2 + 3) * 128 * 32 + blocks_save(4, 32) + workspace(32) + step(4) + 280 +
         4 + 2 * 8 * 32,
     2 * (120 + staging(4) + 2 * kScratch),
     0},
    {2,
     "08_weight_versions",
     {"versions=two_buffers"},
     2,
     (16 + 2) * kStage0 + (2 * 2 + 2 + 3) * 128 * 32 + blocks_save(4, 32) + workspace(32) + step(4) + 320 +
         4 + 2 * 8 * 32,
     2 * (160 + staging(4) + 2 * kScratch),
     0},
    // Both ranks have all rows; with two lanes each lane has half of them.
    {2,
     "10_tensor_parallel",
     {},
     4,
     16 * kPart + part(64, false) + kHashes + step(4),
     2 * (staging(4) + kScratch),
     0},
    {2,
     "10_tensor_parallel",
     {"lanes=2"},
     2,
     16 * kPart + 2 * part(32, false) + kHashes + step(4),
     2 * (staging(4) + kScratch),
     0},
    {2,
     "10_tensor_parallel",
     {"lanes=2", "gathered=kept"},
     2,
     16 * kPart + 2 * part(32, true) + kHashes + step(4),
     2 * (staging(4) + kScratch),
     0},
};

std::vector<Row> rows_of(const Machine& m) { return search(m, measured(), counted()); }
Row row_of(const Machine& m, const Counted& c) {
  for (const Row& row : rows_of(m))
    if (row.candidate.plans.folder == c.folder && row.candidate.plans.settings == c.settings) return row;
  ADD_FAILURE() << "no candidate";
  return {};
}

// All fit on this machine, so the bytes of every candidate are compared.
TEST(ChooseCounts, BytesOfEveryCandidateAreThoseByHand) {
  for (const Counted& c : kCounted) {
    SCOPED_TRACE(c.folder + (c.settings.empty() ? "" : " " + c.settings.back()));
    const Row row = row_of(machine(c.gpus, Bytes(100'000'000'000)), c);
    ASSERT_TRUE(row.fits) << row.reason;
    EXPECT_EQ(row.shape.workload.batch.micro, c.micro);
    EXPECT_EQ(row.shape.workload.activations, Activations::keep);
    EXPECT_EQ(row.needs.device, Bytes(c.device) + kBesideThePlan);
    EXPECT_EQ(row.needs.host, Bytes(c.host));
    EXPECT_EQ(row.needs.disk, Bytes(c.disk));
  }
  for (const std::int64_t gpus : {2, 4}) {  // none is left out
    for (const Candidate& candidate : candidates(gpus))
      EXPECT_TRUE(std::ranges::any_of(kCounted, [&](const Counted& c) {
        return c.folder == candidate.plans.folder && c.settings == candidate.plans.settings;
      })) << candidate.plans.folder;
  }
}

// The bytes that one rank moves in a step of one micro-batch: to the other rank, to its host, and to or from
// the disk.
TEST(ChooseCounts, BytesSentAreThoseByHand) {
  const std::vector<Row> rows = rows_of(machine(2, Bytes(100'000'000'000)));
  constexpr std::int64_t kSums = 4 * 8;  // to the other rank, and down to the host
  // Each of two ranks sends half of what is reduced or gathered, and all of what is all-reduced; 2 bytes per
  // element. In lesson 04 the last two blocks stay in their buffers from forward to backward; the first is
  // gathered twice. Lesson 07 sends an activation, or its gradient.
  const std::tuple<std::string, Bytes Row::*, std::int64_t> all[] = {
      {"01_data_parallel", &Row::sent, 2 * kP2 + kSums},
      {"02_zero1", &Row::sent, kP2 + kP2 + kSums},
      {"03_zero2", &Row::sent, kP2 + kP2 + kSums},
      {"04_zero3", &Row::sent, kP2 + kFirst + 4 * kBlockOf2 + kLast + kSums},
      {"05_offload", &Row::sent, kP2 + kP2 + kSums},
      {"05_offload", &Row::copied, kP2 + kP2 + kSums},
      {"05_offload", &Row::on_disk, 0},
      {"06_infinity", &Row::copied, kP2 + kP2 + kSums},
      {"06_infinity", &Row::on_disk, 2 * kStates},
      {"07_pipeline", &Row::sent, 128 * 64 + kSums},
      {"08_weight_versions", &Row::sent, 2 * 128 * 32 + 2 * kSums},
      {"08_weight_versions", &Row::copied, 5 * 8}};
  for (const auto& [folder, what, bytes] : all) EXPECT_EQ(row_of(rows, folder).*what, Bytes(bytes)) << folder;
}

// The limits are exact to the byte: with the needed bytes the candidate fits, with one byte less it does not.
TEST(ChooseLimits, ACandidateFitsIntoWhatItNeeds) {
  for (const Counted& c : kCounted) {
    SCOPED_TRACE(c.folder + (c.settings.empty() ? "" : " " + c.settings.back()));
    Machine m = machine(c.gpus, Bytes(c.device) + kBesideThePlan);
    m.host_memory = Bytes(c.host), m.disk_size = Bytes(c.disk);
    Row row = row_of(m, c);
    EXPECT_TRUE(row.fits) << row.reason;
    EXPECT_EQ(row.needs.device, m.memory);
    m.memory -= Bytes(1);
    row = row_of(m, c);
    EXPECT_TRUE(row.fits) << row.reason;  // with a smaller micro-batch, or computed again
    EXPECT_LT(row.needs.device, m.memory);
    EXPECT_TRUE(row.shape.workload.batch.micro < c.micro ||
                row.shape.workload.activations != Activations::keep);
    m.memory += Bytes(1), m.host_memory = Bytes(c.host - 1);
    row = row_of(m, c);
    EXPECT_FALSE(row.fits);
    EXPECT_EQ(row.reason, "needs " + human_bytes(Bytes(c.host)) + " in the host's memory, " +
                              human_bytes(Bytes(c.host - 1)) + " there");
    m.host_memory = Bytes(c.host), m.disk_size = Bytes(c.disk - 1);
    row = row_of(m, c);
    EXPECT_EQ(row.fits, c.disk - 1 >= c.disk);
    EXPECT_EQ(row.reason, "needs " + human_bytes(Bytes(c.disk)) + " on the disk, " +
                              human_bytes(Bytes(c.disk - 1)) + " there");
    m.disk_size.reset();  // as large as it takes
    EXPECT_TRUE(row_of(m, c).fits);
  }
}

TEST(ChooseLimits, WhatIsMissingIsSaidOfEachPlace) {
  Machine m = machine(2, Bytes(1));
  m.host_memory = Bytes(2), m.disk_size = Bytes(3);
  const std::string reason = row_of(rows_of(m), "06_infinity").reason;
  for (const char* lack :
       {"on a GPU, 1 B there; ", "in the host's memory, 2 B there; ", "on the disk, 3 B there"})
    EXPECT_NE(reason.find(lack), std::string::npos) << reason;
  m = machine(2, Bytes(100'000'000'000));
  m.disk.reset(), m.disk_size = Bytes(1'000'000'000'000);  // a size without a rate is no disk
  EXPECT_EQ(row_of(rows_of(m), "06_infinity").reason, "cannot: it keeps states on a disk; give --disk");
  m.host_memory.reset();
  EXPECT_EQ(row_of(rows_of(m), "06_infinity").reason,
            "cannot: it keeps states on the host; give --host-memory");
  EXPECT_TRUE(row_of(rows_of(m), "04_zero3").fits) << "a little of the host every machine has";
}

// A model of 24 blocks of width 1024, 50304 x 1024 in the embedding and in the head, 1024 x 1024 positions:
// 406 382 592 parameters. Data parallel takes 16 bytes for each, 6.50 GB. With lesson 05 these lie on the
// host, and 2 for each on the GPU; lesson 06 has less than 1 GB there, and 12 bytes per parameter on a disk:
// 4.88 GB.
Workload large() {
  Workload w = counted();
  w.model = {.layers = 24, .heads = 16, .width = 1024, .context = 1024, .vocab = 50257, .tied = false};
  w.batch = {.sequence = 1024, .global = 8, .micro = 1};
  return w;
}

std::vector<std::string> advice(const Machine& m) {
  std::vector<std::string> lines;
  for (const std::string& line : nearest_that_works(m, measured(), large()))
    lines.push_back(line.substr(0, line.find(" batch.micro=")));
  return lines;
}

TEST(ChooseAdvice, NamesTheHostsMemoryTheDiskAndTheGpus) {
  Machine m = machine(1, Bytes(5'000'000'000));
  m.host_memory.reset(), m.disk.reset();
  const std::vector<std::string> bare = advice(m);
  ASSERT_EQ(bare.size(), 4U);
  // In lesson 05 unit 0 is resident: 16 bytes less for each of 51.5 million parameters. ZeRO-3 takes 8 bytes
  // per parameter, and its units: 3.8 GB. Lesson 00 takes 6.50 GB, 1 GB outside the plan, and activations.
  test::expect_texts({{bare[0], "--host-memory 6GB: lesson 05_offload"},
                      {bare[1], "--host-memory 1GB --disk 4GB/s: lesson 06_infinity"},
                      {bare[2], "--gpus 2: lesson..."},
                      {bare[3], "--memory 8GB: lesson 00_one_device"}});
  // If the disk is too small, another is asked for at the same rate; host memory is never taken away.
  m.host_memory = Bytes(3'000'000'000), m.disk = 2e9, m.disk_size = Bytes(1'000'000'000);
  const std::vector<std::string> small = advice(m);
  ASSERT_EQ(small.size(), 4U);
  test::expect_texts({{small[0], "--host-memory 6GB: lesson 05_offload"},
                      {small[1], "--host-memory 3GB --disk 2GB/s: lesson 06_infinity"}});
  m.disk_size = Bytes(4'900'000'000);
  EXPECT_NE(best(search(m, measured(), large())), nullptr) << "12 bytes a parameter fit there";
}

// The numbers of the table and of its advice are of all ranks: eight share the host's memory.
TEST(ChooseAdvice, HostMemoryIsThatOfAllRanks) {
  Machine m = machine(8, Bytes(2'000'000'000));  // 2.1 GB and activations: parameters alone are on the GPU
  m.host_memory.reset(), m.disk.reset();
  const std::vector<std::string> lines = advice(m);
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines[0].substr(0, 19), "--host-memory 6GB: ")
      << "6.50 GB in slices, those of unit 0 and of a block on the GPUs, and little for each";
}

TEST(CommandLine, TakesHostDiskAndItsSize) {
  const char* const words[] = {"choose", "--gpus",      "2",     "--memory", "24GB", "--host-memory",
                               "512GB",  "--disk-size", "1.5TB", "--disk",   "4GB/s"};
  const auto options = parse_options(11, words);
  ASSERT_TRUE(options);
  EXPECT_EQ(options->machine.memory, Bytes(24'000'000'000));
  EXPECT_EQ(options->machine.host_memory, Bytes(512'000'000'000));
  EXPECT_EQ(options->machine.disk_size, Bytes(1'500'000'000'000));
  EXPECT_EQ(options->machine.disk, 4e9);
  const char* const bare[] = {"choose", "--gpus", "2"};
  EXPECT_FALSE(parse_options(3, bare)->machine.disk_size);
  EXPECT_FALSE(parse_options(3, bare)->machine.host_memory);
}

// A slow link shows in a step; what backward hides does not.
TEST(Predict, AStepTakesComputeOrMessagesWhicheverIsLonger) {
  Machine two = machine(2, Bytes(100'000'000'000));
  const Row row = row_of(search(two, measured(), tiny()), "03_zero2");
  const Rates slow{.flops = 1e15, .memory = 1e15, .link = 1e6, .host_link = 1e15, .adam = 1e15};
  const auto bytes = static_cast<double>(row.sent.value());
  EXPECT_NEAR(row.candidate.seconds(row.shape, slow), bytes / slow.link, 0.01 * bytes / slow.link);
  Rates quick = slow;
  quick.link = 1e15, quick.call_seconds = quick.pair.gather.call_seconds = 1;
  std::int64_t calls = 0;  // nothing hides them: gathers in the first forward, sums in each backward
  for (const auto& [op, count] : row.candidate.plans.plans->comm_plan(row.shape).count) calls += count;
  EXPECT_NEAR(row.candidate.seconds(row.shape, quick), static_cast<double>(calls), 1e-3);
  quick.call_seconds = quick.pair.gather.call_seconds = 0, quick.flops = 1e9;
  const PassTimes pass = pass_times(row.shape.workload, row.shape.workload.model.layers, true, quick);
  const auto m = static_cast<double>(micro_batches_of(row.shape));
  EXPECT_NEAR(row.candidate.seconds(row.shape, quick), m * (pass.forward + pass.backward), 1e-6 * m);
}

// Products and messages at the same time slow each other down by a share of the shorter one. The first unit's
// sum and its gather overlap with nothing.
TEST(Predict, WhatIsHiddenIsNotFree) {
  const Row row = row_of(search(machine(2, Bytes(100'000'000'000)), measured(), tiny()), "02_zero1");
  Rates rates{.flops = 1e12, .memory = 1e18, .link = 1e10, .call_seconds = 0};
  const double free = row.candidate.seconds(row.shape, rates);
  const PassTimes pass = pass_times(row.shape.workload, row.shape.workload.model.layers, true, rates);
  const ParamLayout layout(row.shape.workload.model, WorldSize{2});
  const double first = 4.0 * static_cast<double>(layout.unit(0).sharded_size) / 2 / rates.link,
               others = 4.0 * static_cast<double>(layout.arena_size().value()) / 2 / rates.link - first;
  ASSERT_LT(others, pass.forward);
  EXPECT_NEAR(free, pass.forward + pass.backward + 2 * first, 1e-6);
  rates.taken = 0.25;
  EXPECT_NEAR(row.candidate.seconds(row.shape, rates) - free, 0.25 * 2 * others, 1e-6);
}

// AdamW takes twice as long on the host as a step on the GPU.
TEST(Predict, WhatTheHostsUpdateWaitsFor) {
  Workload workload = tiny();
  workload.batch.micro = workload.batch.global;
  Rates rates{.flops = 1e12, .memory = 1e18, .link = 1e18, .host_link = 1e18};
  const PassTimes pass = pass_times(workload, workload.model.layers, true, rates);
  const ParamLayout layout(workload.model, WorldSize{1});
  const auto all = static_cast<double>(layout.arena_size().value()),
             unit_0 = static_cast<double>(layout.unit(0).sharded_size);
  rates.adam = all / (2 * (pass.forward + pass.backward));
  const auto seconds = [&](const std::vector<std::string>& settings) {
    const Candidate candidate = candidate_of("05_offload", settings);
    return candidate.seconds(shape_on(candidate.plans, 1, workload), rates);
  };
  rates.adam_early = rates.adam / 1.25;
  const double adam = all / rates.adam, others = (all - unit_0) / rates.adam,
               begins = pass_times(workload, 1, true, rates).backward;
  EXPECT_NEAR(seconds({}), adam + pass.backward, 1e-9) << "forward waits, backward follows";
  EXPECT_NEAR(seconds({"resident=1"}), others + pass.backward, 1e-9);
  EXPECT_NEAR(seconds({"update=early"}), begins + 1.25 * adam, 1e-9) << "from the first gradient on";
  EXPECT_NEAR(seconds({"update=early", "resident=1"}), begins + 1.25 * others, 1e-9);
  workload.optim.clip = 0, workload.optim.nonfinite = OnNonFinite::stop;
  EXPECT_NEAR(seconds({}), begins + adam, 1e-9) << "nothing depends on the norm, and states lie once";
  const Candidate infinity = candidate_of("06_infinity", {});
  rates.disk = 1e18;
  EXPECT_NEAR(infinity.seconds(shape_on(infinity.plans, 1, workload), rates), adam + pass.backward, 1e-9)
      << "a window waits for it all the same";
  workload.optim.clip = 1;
  rates.eager_host = 1.5;
  EXPECT_NEAR(seconds({}), adam + 1.5 * pass.backward, 1e-9);
  rates.eager_host = 1;
  // Copies take half of backward: unit 0's gradient comes down after it, and late updates' parameters go up
  // before forward.
  const auto bytes = [](double parameters) { return static_cast<double>(size_of(DType::f32)) * parameters; };
  rates.host_link = 2 * bytes(all) / pass.backward;
  EXPECT_NEAR(seconds({}), adam + pass.backward + bytes(unit_0) / rates.host_link, 1e-9);
  EXPECT_NEAR(seconds({"resident=1"}), others + pass.backward, 1e-9);
  rates.adam = 1e18;
  EXPECT_NEAR(seconds({"update=delayed"}), pass.forward + pass.backward + 2 * bytes(unit_0) / rates.host_link,
              1e-9);
  // Copies take four times as long as backward: AdamW waits for the last one.
  rates.host_link = bytes(all) / (4 * pass.backward), rates.adam = all / pass.backward;
  EXPECT_NEAR(seconds({}), 8 * pass.backward, 1e-6)
      << "all gradients down, then parameters up, longer than AdamW";
  rates.adam_early = rates.adam / 20;  // begins beside backward, which waits for its copies
  EXPECT_NEAR(seconds({"update=early"}), begins + 20 * pass.backward, 1e-6);
  rates.adam_early = rates.adam;
  EXPECT_NEAR(seconds({"update=early"}), 8 * pass.backward, 1e-6) << "parameters go up after the norm";
  rates.host_link = 1e18;
  rates.adam_early = 1e3 * unit_0 / pass.forward;  // quick: only unit 0 is waited for
  EXPECT_NEAR(seconds({"update=early"}), 1.001 * pass.forward + pass.backward, 1e-9);
  EXPECT_NEAR(seconds({"update=early", "resident=1"}), pass.forward + pass.backward, 1e-9);
  // Each of two GPUs updates its slice of a resident unit.
  const Candidate resident = candidate_of("05_offload", {"resident=1"});
  const RunShape two = shape_on(resident.plans, 2, workload);
  const double without = resident.seconds(two, rates);
  rates.memory = 1e9;
  EXPECT_NEAR(
      resident.seconds(two, rates) - without,
      30 * static_cast<double>(ParamLayout(workload.model, WorldSize{2}).unit(0).sharded_size) / 2 / 1e9,
      1e-9);
}

// On a machine whose products take no time, every gather and sum of forward is waited for, with two lanes
// too.
TEST(Predict, LessonTensMessages) {
  for (const std::int64_t gpus : {2, 4}) {
    SCOPED_TRACE(gpus);
    Workload workload = counted();
    workload.model.heads = 4;
    const Row row =
        row_of(search(machine(gpus, Bytes(100'000'000'000)), measured(), workload), "10_tensor_parallel");
    ASSERT_TRUE(row.fits);
    Rates rates{.flops = 1e18, .memory = 1e18, .link = 1e18};
    CopyRates& copies = gpus == 2 ? rates.pair : rates.group;
    rates.pair = rates.group = {.sum = {1e6, 1e18}, .gather = {1e6, 1e18}};
    copies = {.sum = {2, 1e18}, .gather = {3, 1e18}};
    // A block has two halves, each with one sum and one gather in forward and in backward, and norms once
    // more; at the ends there are two of each, and the loss' statistics.
    EXPECT_NEAR(row.candidate.seconds(row.shape, rates), 3 * 2 * (2 * 2 + 3 * 3) + 2 * 2 + 2 * 3 + 3, 1e-3);
    copies = {.sum = {0, 1e18}, .gather = {0, 1e18}};
    rates.part_start_tokens = 1e6, rates.flops = 1e12;
    const double products = row.candidate.seconds(row.shape, rates);
    copies = {.sum = {1e-3, 1e18}, .gather = {1e-3, 1e18}};  // less than a product: hidden in backward
    EXPECT_NEAR(row.candidate.seconds(row.shape, rates) - products, (3 * 2 * 2 + 4 + 1) * 1e-3, 1e-6);
  }
}

// 1F1B with S equal stages and M micro-batches takes (M + S - 1) / M of the time without a bubble.
TEST(Predict, APipelineHasItsBubble) {
  RunShape shape;
  shape.workload = tiny();
  shape.workload.model.vocab = 1, shape.workload.batch.global = 8;
  shape.mesh = Mesh(WorldSize{4}, {{Axis::stages, 4}});
  const Rates rates{.flops = 1e9, .memory = 1e18, .link = 1e18};
  PipelineOptions options;
  options.split = "uniform";
  const PassTimes block = pass_times(shape.workload, 1, false, rates),
                  last = pass_times(shape.workload, 1, true, rates);
  const double each = block.forward + block.backward, seconds = pipeline_seconds(shape, options, rates);
  EXPECT_GE(seconds, (8 + 3) * each);
  EXPECT_LE(seconds, (8 + 3) * (last.forward + last.backward));
}

// Both ends of a pipeline sum the tied matrix; a ring over all ranks between them goes through another node.
TEST(Predict, TheTiedMatrixGoesFromEndToEnd) {
  RunShape shape;
  shape.workload = tiny();
  shape.workload.batch.micro = 1, shape.workload.batch.global = 32;
  shape.mesh = Mesh(WorldSize{8}, {{Axis::stages, 2}});
  const Rates rates{.flops = 1e12, .memory = 1e18, .link = 1e18, .node = 4, .node_link = 1e6};
  PipelineOptions options;
  options.replicas = 4;
  const double without = pipeline_seconds(shape, options, rates);
  shape.workload.model.tied = true;
  const GptConfig& model = shape.workload.model;
  EXPECT_NEAR(pipeline_seconds(shape, options, rates) - without,
              4 * static_cast<double>(model.vocab_padded() * model.width) / rates.node_link, 1e-6);
}

const std::vector<Checked>& checked() {
  static const std::vector<Checked> all = check(measured());
  return all;
}

// The rates that predict a step follow from all other steps: one that took ten times as long is predicted as
// before.
TEST(Predict, ATimedStepDoesNotPredictItself) {
  const std::vector<Checked>& before = checked();
  for (const std::string lesson : {"00_one_device", "10_tensor_parallel"}) {
    Measured changed = measured();
    std::size_t i = 0;
    while (changed.steps[i].lesson != lesson) ++i;
    changed.steps[i].seconds *= 10;
    const std::vector<Checked> after = check(changed);
    EXPECT_EQ(after[i].predicted, before[i].predicted);
    EXPECT_NE(after[i + 1].predicted, before[i + 1].predicted);
  }
}

TEST(Predict, EveryTimedStepIsPredicted) {
  const std::vector<Checked>& all = checked();
  EXPECT_GT(all.size(), 40U);
  double most = 0;
  for (const Checked& row : all) {
    EXPECT_LT(std::abs(row.error()), 0.25) << row.step.record << " " << row.step.run;
    most = std::max(most, std::abs(row.error()));
  }
  EXPECT_LE(most, measured().largest_error);
}

// The quoted runs have 1,024 tokens per step, or another machine's host.
TEST(Predict, EveryTimedStepOfTwoGpusWithinATenth) {
  std::int64_t rows = 0;
  for (const Checked& row : checked()) {
    if (row.step.gpus != 2 || row.step.record == "quoted") continue;
    EXPECT_LT(std::abs(row.error()), 0.1) << row.step.record << " " << row.step.run << " " << row.step.lesson;
    ++rows;
  }
  EXPECT_GT(rows, 30);
}

// If two kinds of GPUs do equal steps, the slower GPU's takes longer by as much as its products do.
TEST(Predict, ATimedStepIsPredictedForItsOwnGpu) {
  Measured two = measured();
  two.steps.push_back(two.steps.front());
  two.steps.back().gpu = "A100-80GB";
  const std::vector<Checked> all = check(two);
  EXPECT_EQ(all.front().step.gpu, "H200");
  EXPECT_NEAR(all.back().predicted / all.front().predicted, 989.0 / 312.0, 0.3);
}

void expect_refused(std::vector<const char*> words, const std::string& message) {
  words.insert(words.begin(), "choose");
  try {
    parse_options(static_cast<int>(words.size()), words.data());
    FAIL() << message;
  } catch (const InputError& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_EQ(std::string(error.what()), message);
  }
}

TEST(CommandLine, RefusesWithOneMessage) {
  const std::pair<std::vector<const char*>, std::string> all[] = {
      {{}, "command line: how many GPUs?\n  fix: --gpus 8, or --help"},
      {{"--gpus", "0"}, "--gpus 0: not a number of GPUs, 1 to 1024\n  fix: --gpus 8"},
      {{"--gpus", "8", "--memory", "24"}, "--memory 24: a size needs its unit\n  fix: --memory 24GB"},
      {{"--gpus", "8", "--link", "25GB"},
       "--link 25GB: a rate needs its unit, bytes a second\n  fix: --link 25GB/s"},
      {{"--gpus", "8", "--memory", "1GB", "--memory", "2GB"}, "--memory: given twice\n  fix: give it once"},
      {{"--gpus", "8", "--gpu", "H20"},
       "--gpu H20: no such GPU in the table; did you mean H200?\n  fix: one of H200, H100, A100-80GB, "
       "A100-40GB, B200, L40S, L4, RTX4090, RTX3090"},
      {{"--gpus", "8", "--gpus-per-node", "3", "--node-link", "1GB/s"},
       "--gpus-per-node 3: 8 GPUs are no whole number of such nodes\n  fix: --gpus-per-node 8"},
      {{"--gpus", "12", "--gpus-per-node", "8"},
       "--gpus-per-node 8: 12 GPUs are no whole number of such nodes\n  fix: --gpus-per-node 6"},
      {{"--gpus", "8", "--gpus-per-node", "4"},
       "--gpus-per-node 4: what does a GPU send to other nodes?\n  fix: --node-link 50GB/s"},
      {{"--gpus", "8", "--node-link", "4GB/s"},
       "--node-link: it is between nodes, and all GPUs are in one\n  fix: --gpus-per-node 8, or leave it "
       "out"},
      {{"--gpus", "8", "--gpus-per-node", "0"},
       "--gpus-per-node 0: not a number of GPUs, 1 to 1024\n  fix: --gpus-per-node 8"},
      {{"--gpus", "8", "--memori", "1GB"},
       "--memori: there is no such flag; did you mean --memory?\n  fix: --help lists all"}};
  for (const auto& [words, message] : all) expect_refused(words, message);
}

// The advice never names a GPU for which the build has no kernels.
TEST(Gpus, TheBuildServesAllOfTheTable) {
  for (const Gpu& gpu : known_gpus())
    EXPECT_TRUE(architectures_serve(STAGECRAFT_GPU_ARCHITECTURES, gpu.capability)) << gpu.name;
}

TEST(CommandLine, TakesTheTablesMemory) {
  const char* const words[] = {"choose", "--gpus", "2", "--gpu", "L4", "--disk", "1.5GB/s"};
  const auto options = parse_options(7, words);
  ASSERT_TRUE(options);
  EXPECT_EQ(options->machine.memory, Bytes(24'000'000'000));
  EXPECT_EQ(options->machine.disk, 1.5e9);
  EXPECT_FALSE(options->machine.link);
}

}  // namespace
}  // namespace sc::choose
