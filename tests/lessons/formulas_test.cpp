// Every formula that a plan prints, worked out with numbers of this test's own, is the bytes beside it.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "common/config/workload_table.h"
#include "common/memory/formula.h"
#include "common/model/param_layout.h"
#include "common/run/surroundings.h"
#include "lessons/plans.h"
#include "tests/support/answers.h"
#include "tests/support/formula.h"
#include "tests/support/pairwise.h"

namespace sc::test {
namespace {

std::int64_t evaluate(const char* formula) {
  return Formula(formula, {{"P", 12}, {"N", 4}, {"x_1", 5}}).value();
}

TEST(Formula, IsWorkedOutAsItIsRead) {
  expect_counts({{evaluate("4 P"), 48},
                 {evaluate("4 x 2 P/N"), 24},
                 {evaluate("4 (P - 2 N)/N - 1 + x_1"), 8},
                 {evaluate("4 (N - 1) 256 KiB"), 12 * 256 * 1024},
                 {evaluate("2 x N MiB"), 8 * 1024 * 1024}});
  for (const char* none :
       {"", "4 of this stage", "P/5", "P/(N - 4)", "4 (P", "4 P)", "lr, step", "P +", "4P"})
    EXPECT_THROW(evaluate(none), std::invalid_argument) << none;
}

/// A plan to work out: a lesson in a setting, on ranks of a kind.
struct Case {
  std::string folder;
  const Choose& choose;  // whose text says which one it is
  RunShape shape;
  std::vector<std::string> settings = {};
  SymbolValues more = {};  // that follow from the settings
};

std::int64_t bytes_in(DType dtype) { return size_of(dtype); }

/// Symbols of the model, the batch and the ranks; P and W as `layout` has them.
SymbolValues symbols_of(const Case& c, const ParamLayout& layout) {
  const Workload& w = c.shape.workload;
  const std::int64_t N = to_int(c.shape.mesh.world()), S = c.shape.mesh.size(Axis::stages),
                     R = N / (S * c.shape.mesh.size(Axis::tensor)), B = w.batch.micro, T = w.batch.sequence,
                     d = w.model.width, V = (w.model.vocab + 127) / 128 * 128;
  const std::int64_t e = bytes_in(w.precision.dtype), tokens = B * T;
  const auto share_of = [&](std::int64_t rows) { return ((rows + B - 1) / B + R - 1) / R; };
  // A block: ln1, qkv, att, mid, ln2, fc and, unless it is computed again, GELU; four statistics and an lse a
  // head. Its gradients: fc, mid, qkv, and 13 vectors.
  const std::int64_t whole = e * tokens * 15 * d + 4 * tokens * (4 + w.model.heads);
  const std::int64_t waiting = e * tokens * 8 * d + 4 * 13 * d;
  std::int64_t saved = whole, work = waiting + e * tokens * d;
  if (w.activations == Activations::recompute_gelu) saved -= e * tokens * 4 * d, work += e * tokens * 4 * d;
  if (w.activations == Activations::recompute) saved = 0, work += whole;
  const std::int64_t logits = e * std::min(w.head_chunk, tokens) * V;
  return {{"P", layout.arena_size().value()},
          {"W", layout.arena_size(Segment::whole).value()},
          {"L", w.model.layers},
          {"d", d},
          {"V", V},
          {"B", B},
          {"T", T},
          {"M", share_of(w.batch.global)},
          {"M_eval", share_of(w.data.validation_rows)},
          {"N", N},
          {"S", S},
          {"R", R},
          {"saved", saved},
          {"work", work},
          {"head", e * tokens * d + 2 * 4 * tokens + logits},
          {"waiting", waiting}};
}

/// Those that depend on the buffer whose name says which unit it is for.
void add_unit(const std::string& name, const ParamLayout& layout, SymbolValues& values) {
  const auto at = name.rfind(", ");
  if (at == std::string::npos) return;
  const std::string which = name.substr(at + 2);
  const auto add = [&](int unit) {
    const UnitLayout& u = layout.unit(unit);
    values["unit"] = std::max(values["unit"], u.sharded_size + u.whole_size);
    values["whole"] = std::max(values["whole"], u.whole_size);
  };
  if (which == "unit 0") add(0);
  if (which == "last unit") add(layout.last_unit());
  if (which == "a block" || which == "even blocks" || which == "odd blocks")
    for (int block = 1; block < layout.last_unit(); ++block) add(block);
}

/// What was worked out: so that a symbol that no formula has is none of the legend.
std::set<std::string>& used() {
  static std::set<std::string> symbols;
  return symbols;
}

void note_symbols(const std::string& formula) {
  static const std::regex kWord("\\w+");
  for (std::sregex_iterator word(formula.begin(), formula.end(), kWord), end; word != end; ++word)
    used().insert(word->str());
}

bool in_legend(const std::string& symbol) {
  return std::ranges::any_of(kFormulaSymbols, [&](const FormulaSymbol& s) { return symbol == s.symbol; });
}

/// `of_item(name, values)` adds what one buffer's name decides.
using OfItem = std::function<void(const std::string&, SymbolValues&)>;

void expect_formulas_hold(
    const Case& c, const ParamLayout& layout,
    const OfItem& of_item = [](const std::string&, SymbolValues&) {}) {
  SCOPED_TRACE(c.choose.text());
  MemoryPlan plan = lesson_plans_of(c.folder, c.settings).plans->memory_plan(c.shape);
  detail::plan_surroundings(c.shape, plan);
  SymbolValues all = symbols_of(c, layout);
  for (const auto& [symbol, value] : c.more) all[symbol] = value;
  for (const auto& [symbol, value] : all) EXPECT_TRUE(in_legend(symbol)) << symbol;
  for (const Buffer& item : plan.items()) {
    SymbolValues values = all;
    add_unit(item.name, layout, values);
    of_item(item.name, values);
    note_symbols(item.formula());
    try {
      EXPECT_EQ(Formula(item.formula(), values).value(), item.bytes().value())
          << item.name << " = " << item.formula();
    } catch (const std::invalid_argument& error) {
      ADD_FAILURE() << item.name << " = " << error.what();
    }
  }
}
/// A workload and ranks of every kind; shapes that divide by nothing convenient.
RunShape any_shape(Choose& choose, bool tied_or_not = true) {
  Workload w;
  w.model = {.layers = choose("layers", {std::int64_t{8}, std::int64_t{9}}),
             .heads = 2,
             .width = 20,
             .context = 12,
             .vocab = 37,
             .tied = tied_or_not && choose("tied", {true, false})};
  w.batch = {.sequence = 9, .global = 24, .micro = choose("micro", {std::int64_t{1}, std::int64_t{2}})};
  w.data.validation_rows = choose("validation_rows", {std::int64_t{4}, std::int64_t{50}});
  w.activations =
      choose("activations", {Activations::keep, Activations::recompute_gelu, Activations::recompute});
  w.head_chunk = choose("head_chunk", {std::int64_t{5}, std::int64_t{4096}});
  w.precision.dtype = choose("dtype", {DType::f32, DType::bf16, DType::f16});
  w.precision.grad_rule = choose("grad_dtype", {DTypeRule::same, DTypeRule::fp32});
  resolve_dtypes(w.precision);
  RunShape shape{.workload = w, .mesh = Mesh(WorldSize{choose("world", {1, 2, 3, 4})})};
  const bool apart = choose("apart", {true, false});
  if (choose("device", {DeviceKind::cpu, DeviceKind::cuda}) == DeviceKind::cpu) {
    shape.comm = apart ? CommBackend::mpi : CommBackend::local;
  } else {
    shape.device = DeviceKind::cuda;
    shape.ops = OpsBackend::fused;
    shape.comm = apart ? CommBackend::nccl : CommBackend::staged;
  }
  return shape;
}

ParamLayout layout_for(const RunShape& shape, std::int64_t ranks, std::int64_t persist_below = 0) {
  return {shape.workload.model, WorldSize{static_cast<int>(ranks)}, persist_below};
}

/// f(case, choose) of every row of the table of what `f` and any_shape ask for.
template <class F>
void for_every_case(const char* folder, const F& f, bool tied_or_not = true) {
  Choose::every_pair_of([&](Choose& choose) {
    Case c{folder, choose, any_shape(choose, tied_or_not)};
    f(c, choose);
    return 0;
  });
}

std::string setting(const std::string& key, std::int64_t value) { return key + "=" + std::to_string(value); }

TEST(Formulas, OfOneDevice) {
  for_every_case("00_one_device", [](Case& c, Choose& choose) {
    const std::int64_t ranks = choose("virtual_ranks", {std::int64_t{1}, std::int64_t{3}});
    const std::string every = choose("every", {std::string("step"), std::string("micro_batch")}),
                      tied_sum = choose("tied_sum", {std::string("joint"), std::string("split")});
    c.settings = {setting("virtual_ranks", ranks), "reduce_every=" + every, "tied_sum=" + tied_sum};
    c.shape.mesh = Mesh(WorldSize{1});
    c.more = {{"virtual_ranks", ranks}};
    expect_formulas_hold(c, layout_for(c.shape, ranks));
  });
}

/// A tensor rank's own symbols, in bytes of `e`.
void add_tensor_rank(Case& c, const ParamLayout& layout, bool split, bool kept) {
  const Workload& w = c.shape.workload;
  const std::int64_t e = bytes_in(w.precision.dtype), t = c.shape.mesh.size(Axis::tensor),
                     N = w.batch.micro * w.batch.sequence, n = split ? N / t : N, d = w.model.width,
                     h = layout.heads().size(), a = h * d / w.model.heads, m = layout.hidden().size();
  std::int64_t part =
      e * ((kept || n == N ? 2 * N * d : 0) + n * d + N * (4 * a + 2 * m)) + 4 * (4 * n + h * N);
  if (w.activations == Activations::recompute_gelu) part -= e * N * m;
  c.more = {{"t", t},
            {"n", n},
            {"a", a},
            {"m", m},
            {"v", layout.vocab_rows().size()},
            {"part", part},
            {"chunk", std::min(w.head_chunk, N)}};
}

TEST(Formulas, OfTensorParallel) {
  for_every_case("10_tensor_parallel", [](Case& c, Choose& choose) {
    c.shape.workload.model.heads = 5;
    c.shape.mesh = Mesh(c.shape.mesh.world(), {{Axis::tensor, to_int(c.shape.mesh.world())}});
    c.shape.rank =
        Rank{choose("last", {true, false}) ? static_cast<int>(c.shape.mesh.size(Axis::tensor)) - 1 : 0};
    const std::int64_t N = c.shape.workload.batch.micro * c.shape.workload.batch.sequence;
    const bool split = choose("split", {true, false}) && N % c.shape.mesh.size(Axis::tensor) == 0,
               kept = choose("kept", {true, false});
    c.settings = {split ? "tokens=split" : "tokens=whole", kept ? "gathered=kept" : "gathered=again",
                  setting("lanes", choose("lanes", {1, 2}))};
    const ParamLayout layout(
        c.shape.workload.model, WorldSize{1},
        TensorCut{static_cast<int>(to_int(c.shape.rank)), static_cast<int>(c.shape.mesh.size(Axis::tensor))});
    add_tensor_rank(c, layout, split, kept && split && c.shape.mesh.size(Axis::tensor) > 1);
    expect_formulas_hold(c, layout);
  });
}

// One device that computes in parts holds, beside its own, what as many tensor ranks would.
TEST(Formulas, OfOneDeviceInParts) {
  for_every_case("00_one_device", [](Case& c, Choose& choose) {
    c.shape.workload.model.heads = 5;
    c.shape.mesh = Mesh(WorldSize{1});
    const int t = choose("t", {2, 3});
    c.settings = {setting("tensor_ranks", t), "tokens=whole", setting("lanes", choose("lanes", {1, 2}))};
    c.more = {{"virtual_ranks", 1},
              {"t", t},
              {"n", c.shape.workload.batch.micro * c.shape.workload.batch.sequence}};
    ByName parts;
    for (int rank = 0; rank < t; ++rank) {
      RunShape shape = c.shape;
      shape.mesh = Mesh(WorldSize{t}, {{Axis::tensor, t}}), shape.rank = Rank{rank};
      shape.workload.activations = Activations::keep;
      for (const auto& [buffer, bytes] :
           lesson_plans_of("10_tensor_parallel", {"tokens=whole"}).plans->memory_plan(shape).by_name())
        parts[buffer] += bytes;
    }
    expect_formulas_hold(c, layout_for(c.shape, 1), [&](const std::string& name, SymbolValues& values) {
      for (const auto& [buffer, bytes] : parts)
        if (buffer.name == name) values["parts"] = bytes.value();
    });
  });
}

std::int64_t largest_unit(const ParamLayout& layout) {
  std::int64_t largest = 0;
  for (int unit = 0; unit < layout.num_units(); ++unit)
    largest = std::max(largest, layout.unit(unit).sharded_size);
  return largest;
}
std::int64_t largest_tensor(const ParamLayout& layout) {
  std::int64_t largest = 0;
  for (int unit = 0; unit < layout.num_units(); ++unit)
    for (const ParamTensor& tensor : layout.unit(unit).tensors) largest = std::max(largest, tensor.numel());
  return largest;
}

TEST(Formulas, OfDataParallel) {
  for_every_case("01_data_parallel", [](Case& c, Choose& choose) {
    PrecisionConfig& precision = c.shape.workload.precision;
    precision.reduce_rule = choose("reduce_dtype", {DTypeRule::same, DTypeRule::fp32});
    resolve_dtypes(precision);
    const std::string bucket =
        choose("bucket", {std::string("tensor"), std::string("unit"), std::string("model"),
                          std::string("1000"), std::string("100000000")});
    c.settings = {"bucket=" + bucket};
    const ParamLayout layout = layout_for(c.shape, to_int(c.shape.mesh.world()));
    const std::int64_t all = layout.arena_size().value();
    c.more = {{"bucket", bucket == "tensor" ? largest_tensor(layout)
                         : bucket == "unit" ? largest_unit(layout)
                         : bucket == "1000" ? 1000
                                            : all}};
    expect_formulas_hold(c, layout);
  });
}

TEST(Formulas, OfZero1) {
  for_every_case("02_zero1", [](Case& c, Choose& /*choose*/) {
    expect_formulas_hold(c, layout_for(c.shape, to_int(c.shape.mesh.world())));
  });
}

TEST(Formulas, OfZero2) {
  for_every_case("03_zero2", [](Case& c, Choose& choose) {
    const std::string bucket =
        choose("bucket", {std::string("unit"), std::string("1000"), std::string("100000000")});
    c.settings = {"bucket=" + bucket};
    const std::int64_t N = to_int(c.shape.mesh.world());
    const ParamLayout layout = layout_for(c.shape, N);
    // 1000 of all ranks: each one's part is cut at multiples of 64.
    const std::int64_t part = ((1000 + N - 1) / N + 63) / 64 * 64;
    c.more = {{"bucket", bucket == "1000" ? N * part : layout.arena_size().value()}};
    expect_formulas_hold(c, layout);
  });
}

TEST(Formulas, OfZero3) {
  for_every_case("04_zero3", [](Case& c, Choose& choose) {
    const std::int64_t below =
        choose("persist_below", {std::int64_t{0}, std::int64_t{100}, std::int64_t{1} << 30});
    c.settings = {setting("persist_below", below), setting("prefetch", choose("prefetch", {0, 1, 3})),
                  std::string("reshard_after_forward=") + choose("reshard", {"on", "off"})};
    const int groups = choose("groups", {1, 2});
    const std::int64_t N = to_int(c.shape.mesh.world()), k = N % groups == 0 ? N / groups : N;
    if (k < N) c.settings.push_back(setting("shard_ranks", k));
    c.more = {{"k", k}, {"R", N / k}};
    expect_formulas_hold(c, layout_for(c.shape, k, below));
  });
}

TEST(Formulas, OfOffload) {
  for_every_case("05_offload", [](Case& c, Choose& choose) {
    c.settings = {std::string("parameters=") + choose("parameters", {"whole", "sharded"}),
                  std::string("update=") + choose("update", {"exact", "delayed"}),
                  setting("prefetch", choose("prefetch", {0, 1, 3}))};
    expect_formulas_hold(c, layout_for(c.shape, to_int(c.shape.mesh.world())));
  });
}

std::int64_t up_to_blocks(std::int64_t bytes) { return (bytes + 4095) / 4096 * 4096 - bytes; }

/// Each unit's slice in pieces.
std::vector<std::int64_t> pieces_of(const ParamLayout& layout, std::int64_t ranks, std::int64_t piece) {
  std::vector<std::int64_t> pieces;
  for (int unit = 0; unit < layout.num_units(); ++unit)
    for (std::int64_t left = layout.unit(unit).sharded_size / ranks; left > 0; left -= piece)
      pieces.push_back(std::min(left, piece));
  return pieces;
}

TEST(Formulas, OfInfinity) {
  for_every_case("06_infinity", [](Case& c, Choose& choose) {
    const std::int64_t piece =
                           choose("piece", {std::int64_t{64}, std::int64_t{1000}, std::int64_t{4'000'000}}),
                       most = choose("buffers", {std::int64_t{1}, std::int64_t{4}, std::int64_t{1000}});
    const bool delayed = choose("delayed", {false, true});
    const std::string grads_at = choose("grads_at", {std::string("host"), std::string("device")}),
                      params_at = choose("params_at",
                                         {std::string("device"), std::string("host"), std::string("disk")}),
                      parameters = choose("parameters", {std::string("sharded"), std::string("whole")});
    c.settings = {setting("piece", piece),
                  setting("buffers", most),
                  delayed ? "update=delayed" : "update=exact",
                  "grads_at=" + (delayed ? "host" : grads_at),  // what the lesson refuses is left out
                  "params_at=" + params_at,
                  "parameters=" + (params_at == "device" ? parameters : "sharded")};
    const std::int64_t N = to_int(c.shape.mesh.world());
    const ParamLayout layout = layout_for(c.shape, N);
    const std::vector<std::int64_t> pieces = pieces_of(layout, N, piece);
    const std::int64_t e = bytes_in(c.shape.workload.precision.dtype),
                       largest = *std::ranges::max_element(pieces),
                       versions = params_at != "disk" ? 0
                                  : delayed           ? 2
                                                      : 1;
    std::int64_t on_disk = 0;
    for (const std::int64_t n : pieces) on_disk += up_to_blocks(12 * n) + versions * up_to_blocks(e * n);
    c.more = {{"piece", largest}, {"buffers", std::min(most, static_cast<std::int64_t>(pieces.size()))}};
    expect_formulas_hold(c, layout, [&](const std::string& name, SymbolValues& values) {
      if (name == "window of states") values["rounding"] = up_to_blocks(12 * largest);
      if (name == "parameters to the disk" || name == "parameters from the disk")
        values["rounding"] = up_to_blocks(e * largest);
      if (name == "up to whole blocks") values["rounding"] = on_disk;
    });
  });
}

/// Blocks of each position: as even as `positions` allows, but the last one has what is left.
std::vector<std::int64_t> split_into(std::int64_t blocks, std::int64_t positions) {
  std::vector<std::int64_t> split(static_cast<std::size_t>(positions), blocks / positions);
  split.back() += blocks % positions;
  return split;
}
std::string text(const std::vector<std::int64_t>& split) {
  std::string out = "split=";
  for (const std::int64_t blocks : split) out += (out.back() == '=' ? "" : ",") + std::to_string(blocks);
  return out;
}

/// Elements of a stage: its positions' blocks, unit 0 on the first stage, the last unit on the last one, and
/// there wte once more where it is tied: all of unit 0 where states are cut.
std::int64_t elements_of_stage(const Case& c, const ParamLayout& layout,
                               const std::vector<std::int64_t>& split, std::int64_t stage, bool sharded) {
  const std::int64_t S = c.shape.mesh.size(Axis::stages);
  const GptConfig& model = c.shape.workload.model;
  std::int64_t elements = 0;
  for (std::size_t position = 0; position < split.size(); ++position)
    if (static_cast<std::int64_t>(position) % S == stage)
      elements += split[position] * layout.unit(1).sharded_size;
  if (stage == 0) elements += layout.unit(0).sharded_size;
  if (stage == S - 1) elements += layout.unit(layout.last_unit()).sharded_size;
  if (stage == S - 1 && S > 1 && model.tied)
    elements += sharded ? layout.unit(0).sharded_size : (model.vocab + 127) / 128 * 128 * model.width;
  return elements;
}

/// All ranks of a pipeline.
void expect_stages_hold(Case c, const std::vector<std::int64_t>& split, bool sharded) {
  const std::int64_t R = to_int(c.shape.mesh.world()) / c.shape.mesh.size(Axis::stages);
  const ParamLayout layout = layout_for(c.shape, R);
  c.settings.push_back(text(split));
  for (int rank = 0; rank < to_int(c.shape.mesh.world()); ++rank) {
    SCOPED_TRACE("rank " + std::to_string(rank));
    c.shape.rank = Rank{rank};
    c.more["stage"] = elements_of_stage(c, layout, split, rank / R, sharded);
    expect_formulas_hold(c, layout);
  }
}

TEST(Formulas, OfPipelines) {
  for_every_case("07_pipeline", [](Case& c, Choose& choose) {
    const std::string schedule =
        choose("schedule", {std::string("naive"), std::string("gpipe"), std::string("1f1b"),
                            std::string("interleaved"), std::string("zb_h1")});
    const std::int64_t world = to_int(c.shape.mesh.world()), wanted = choose("replicas", {1, 2}),
                       replicas = world % wanted == 0 ? wanted : 1,
                       of_zb = choose("chunks", {std::int64_t{1}, std::int64_t{2}}),
                       chunks = schedule == "interleaved" ? 2
                                : schedule == "zb_h1"     ? of_zb
                                                          : 1;
    const bool sharded = choose("sharded", {false, true});
    c.shape.mesh = Mesh(c.shape.mesh.world(), {{Axis::stages, world / replicas}});
    c.shape.workload.batch.global = 48;  // M is a multiple of S in every world, as interleaving wants
    c.settings = {"schedule=" + schedule, setting("chunks", chunks), setting("replicas", replicas),
                  std::string("states=") + (sharded ? "sharded" : "whole")};
    expect_stages_hold(c, split_into(c.shape.workload.model.layers, c.shape.mesh.size(Axis::stages) * chunks),
                       sharded && replicas > 1);
  });
}

TEST(Formulas, OfWeightVersions) {
  for_every_case(
      "08_weight_versions",
      [](Case& c, Choose& choose) {
        Workload& w = c.shape.workload;
        if (w.precision.dtype == DType::f16) w.precision.dtype = DType::bf16;  // refused
        resolve_dtypes(w.precision);
        const std::string versions =
            choose("versions", {std::string("none"), std::string("stash"), std::string("vertical_sync"),
                                std::string("two_buffers")});
        const std::int64_t S = to_int(c.shape.mesh.world()), M = w.batch.global / w.batch.micro,
                           wanted = choose("update_every", {std::int64_t{0}, std::int64_t{4}}),
                           every = wanted > 0                  ? wanted
                                   : versions == "two_buffers" ? M
                                                               : 1,
                           norm_lag = (S - 1 + every - 1) / every;
        if (versions == "none" && w.activations == Activations::recompute)
          w.activations = Activations::keep;  // refused
        c.shape.mesh = Mesh(c.shape.mesh.world(), {{Axis::stages, S}});
        c.settings = {"versions=" + versions,
                      wanted > 0 ? setting("update_every", wanted) : "update_every=auto"};
        c.more = {{"norm_lag", norm_lag}, {"result_lag", (2 * norm_lag * every + M - 1) / M}};
        expect_stages_hold(c, split_into(w.model.layers, S), false);
      },
      false);
}

// After the tests above, in one process: a symbol of the legend that nothing prints would be a lie too.
TEST(Formulas, UseEverySymbolOfTheLegend) {
  if (!used().contains("norm_lag")) GTEST_SKIP() << "the other tests have not run";
  // A checkpoint's copy is part of a job, not of a lesson's plan.
  const std::set<std::string> elsewhere = {"copied", "pending"};
  for (const FormulaSymbol& s : kFormulaSymbols)
    if (!elsewhere.contains(s.symbol)) {
      EXPECT_TRUE(used().contains(s.symbol)) << s.symbol;
    }
}

}  // namespace
}  // namespace sc::test
