// Tests the program `checkpoint` as a process: exit codes, messages, files.
#include <stdlib.h>

#include <cmath>
#include <map>

#include "common/model/hf_names.h"
#include "common/storage/checkpoint/command/command.h"
#include "common/storage/checkpoint/command/numbers.h"
#include "common/storage/safetensors.h"
#include "tests/storage/checkpoint_support.h"
#include "tests/support/command.h"
#include "tests/support/file_ops_decorators.h"

namespace sc::checkpoint {
namespace {

using namespace sc::checkpoint::test;  // NOLINT

class CheckpointProcess : public InTempDir {
 protected:
  /// Runs `checkpoint <arguments>` in the temporary directory.
  sc::test::Outcome run_checkpoint(const std::string& arguments, const std::string& before = "") {
    return sc::test::run_command("cd '" + dir_.path().string() + "' && " + before + CHECKPOINT_PROGRAM " " +
                                 arguments);
  }
  void expect(const std::string& arguments, int code, const std::string& output) {
    const sc::test::Outcome run = run_checkpoint(arguments);
    EXPECT_EQ(run.code, code) << arguments;
    EXPECT_EQ(run.text, output) << arguments;
  }
  /// Flips one bit of the last byte of the file `name`.
  void damage(const std::string& name) {
    const auto file = ops_->open_write(dir_ / name);
    const Bytes last = file->size() - Bytes(1);
    std::byte byte{};
    file->read_at({&byte, 1}, last);
    byte ^= std::byte{1};
    file->write_at({&byte, 1}, last);
  }
  Path save_small(const std::string& dir, std::int64_t step, std::int64_t world) {
    return save(*ops_, dir_ / dir, step, world, kSmallModel);
  }
};

// An export refuses weights that are NaN or infinite, and weights that become infinite in the requested type.
TEST_F(CheckpointProcess, ExportsNothingThatIsNotFinite) {
  for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF, 70000.0F}) {
    for (const std::size_t tensor : {std::size_t{0}, std::size_t{1}}) {  // as it stands, and transposed
      Manifest manifest = manifest_of(5, 1, kSmallModel);
      const Path target = dir_ / "run" / generation_name(5);
      const Entries entries = cut(1, kSmallModel, {"master"});
      AtomicDir out(*ops_, target, AtomicDir::Existing::replace);
      FileWriter file(*ops_, out.path(), {5, 0}, entries[0]);
      for (std::size_t e = 0; e < entries[0].size(); ++e) {
        auto values = values_of(entries[0][e].key, entries[0][e].range);
        if (e == tensor) values[7] = bad;
        file.write(e, std::as_bytes(std::span(values)));
      }
      manifest.files.push_back(file.finish());
      commit_generation(*ops_, out, manifest);
      const std::string name = tensor == 0 ? "wte.weight" : "h.0.attn.c_attn.weight";
      if (std::isfinite(bad)) {
        EXPECT_EQ(run_checkpoint("export run large --dtype bf16 --replace").code, 0);
        expect("export run none --dtype f16", 70,
               "error: transformer." + name +
                   ": holds a number that is too large for f16\n  fix: --dtype f32 or bf16\n");
      } else {
        expect("export run none", 70,
               "error: run/step-000005: " + name +
                   "@master holds a number that is not finite (NaN or infinite)\n" +
                   "  fix: an older checkpoint, of before the training went wrong; nothing was written\n");
      }
      EXPECT_EQ(ops_->kind(dir_ / "none"), PathKind::absent);
    }
  }
}

TEST_F(CheckpointProcess, ShowsOneOrADirectoryOfThem) {
  save_small("run", 20, 2);
  Entries entries = cut(1, kSmallModel);
  entries[0].push_back({{"wte.weight", "parameters", 1}, {0, 6}, DType::f32});
  save(*ops_, dir_ / "run", manifest_of(300, 1, kSmallModel), entries);
  expect("show run/step-000020", 0,
         "  checkpoint   step  lesson    world  bytes    saved\n"
         "  step-000020    20  04_zero3      2  3.91 kB  master, momentum, variance\n");
  expect("show run", 0,
         "  checkpoint   step  lesson    world  bytes    saved\n"
         "  step-000020    20  04_zero3      2  3.91 kB  master, momentum, variance\n"
         "  step-000300   300  04_zero3      1  3.42 kB  master, momentum, parameters.v1, variance\n");
  ops_->remove(dir_ / "run/step-000300/rank-0000.safetensors");
  const sc::test::Outcome run = run_checkpoint("show run");
  EXPECT_EQ(run.code, 0);
  EXPECT_NE(run.text.find("variance\ndamaged: run/step-000300/rank-0000.safetensors: cannot open: No such"),
            std::string::npos)
      << run.text;
}

TEST_F(CheckpointProcess, ShowsWhichFileHoldsWhat) {
  Entries entries = cut(2, {{"wte.weight", {4, 2}}, {"a.bias", {2}}}, {"momentum", "parameters"});
  entries[0].push_back({{"wte.weight", "parameters", 1}, {0, 3}, DType::f32});
  entries[1].push_back({{"sent", kInFlight}, {0, 5}, DType::f32});
  for (Entries::value_type& of_a_rank : entries) {  // a matrix whose columns two files share
    const std::int64_t rank = &of_a_rank - entries.data();
    for (const char* purpose : {"momentum", "parameters"})
      of_a_rank.push_back({{"c_proj.weight", purpose}, {0, 4}, DType::f32, {2 * rank, 2 * rank + 2, 4}});
  }
  const Manifest manifest =
      manifest_of(7, 2, {{"wte.weight", {4, 2}}, {"a.bias", {2}}, {"c_proj.weight", {2, 4}}});
  save(*ops_, dir_ / "run", manifest, entries);
  expect("show run --entries", 0,
         "  tensor         purpose        elements         of  file\n"
         "  wte.weight     momentum       [0:2]             8  rank-0000.safetensors\n"
         "  wte.weight     momentum       [2:8]             8  rank-0001.safetensors\n"
         "  wte.weight     parameters     [0:2]             8  rank-0000.safetensors\n"
         "  wte.weight     parameters     [2:8]             8  rank-0001.safetensors\n"
         "  wte.weight     parameters.v1  [0:3]             8  rank-0000.safetensors\n"
         "  a.bias         momentum       [0:2]             2  rank-0001.safetensors\n"
         "  a.bias         parameters     [0:2]             2  rank-0001.safetensors\n"
         "  c_proj.weight  momentum       (0:2 of 4)[0:4]   8  rank-0000.safetensors\n"
         "  c_proj.weight  momentum       (2:4 of 4)[0:4]   8  rank-0001.safetensors\n"
         "  c_proj.weight  parameters     (0:2 of 4)[0:4]   8  rank-0000.safetensors\n"
         "  c_proj.weight  parameters     (2:4 of 4)[0:4]   8  rank-0001.safetensors\n"
         "  sent           in_flight      [0:5]             5  rank-0001.safetensors\n");
  expect("show run/step-000007 --entries", 0, run_checkpoint("show run --entries").text);
}

TEST_F(CheckpointProcess, VerifiesEveryByte) {
  save_small("run", 20, 2);
  save_small("run", 30, 1);
  expect("verify run", 0,
         "run/step-000020: whole, 3.91 kB in 2 files\nrun/step-000030: whole, 3.31 kB in 1 file\n");
  damage("run/step-000030/rank-0000.safetensors");
  const std::string what =
      "run/step-000030/rank-0000.safetensors: tensor ln_f.bias@variance is damaged: the 4 bytes at byte 3304 "
      "do not have their check sum\n";
  expect("verify run/step-000030", 65,
         "error: " + what + "  fix: use another checkpoint: this file is not whole\n");
  expect("verify run", 65,
         "run/step-000020: whole, 3.91 kB in 2 files\nrun/step-000030: damaged: " + what +
             "error: run: 1 of its 2 checkpoints are damaged\n"
             "  fix: resume from another one, and remove what is damaged\n");
}

TEST_F(CheckpointProcess, OtherCutsAreNoDifference) {
  save_small("a", 20, 4);
  Manifest other = manifest_of(20, 3, kSmallModel);
  other.lesson = "01_data_parallel";
  other.strategy = {{"bucket", "unit"}};
  save(*ops_, dir_ / "b", other, cut(3, kSmallModel));
  expect("diff a b/step-000020", 0,
         "A: a/step-000020\nB: b/step-000020\n"
         "lesson: \"04_zero3\", \"01_data_parallel\"\n"
         "strategy.bucket: not there, \"unit\"\n"
         "strategy.persist_below: \"100\", not there\n"
         "world: 4, 3\n"
         "master: 3 tensors equal\nmomentum: 3 tensors equal\nvariance: 3 tensors equal\n");
}

/// Saves a checkpoint of one tensor with the given values of each purpose.
template <class T>
void save_values(FileOps& ops, const Path& dir, DType dtype,
                 const std::map<std::string, std::vector<T>>& purposes) {
  Manifest manifest =
      manifest_of(1, 1, {{"a", {static_cast<std::int64_t>(purposes.begin()->second.size())}}});
  AtomicDir out(ops, dir / generation_name(1), AtomicDir::Existing::refuse);
  std::vector<Entry> entries;
  for (const auto& [purpose, values] : purposes) {
    entries.push_back({{"a", purpose}, {0, static_cast<std::int64_t>(values.size())}, dtype});
  }
  FileWriter file(ops, out.path(), {1, 0}, entries);
  std::size_t e = 0;
  for (const auto& [purpose, values] : purposes) file.write(e++, std::as_bytes(std::span(values)));
  manifest.files = {file.finish()};
  commit_generation(ops, out, manifest);
}

TEST_F(CheckpointProcess, DifferencesAreCountedAndMeasured) {
  const float nan = std::nanf("");
  using Values = std::map<std::string, std::vector<float>>;
  save_values(*ops_, dir_ / "a", DType::f32, Values{{"master", {1, 2, 3, 0}}, {"momentum", {nan, 1, 2, 3}}});
  save_values(
      *ops_, dir_ / "b", DType::f32,
      Values{{"master", {1, 2.5, 2, -0.0F}}, {"momentum", {nan, 1, 2, 3}}, {"variance", {1, 1, 1, 1}}});
  save_values(*ops_, dir_ / "c", DType::f32, Values{{"master", {1, 2, 3, 0}}, {"momentum", {1, nan, 2, 3}}});
  const std::string a_b = "A: a/step-000001\nB: b/step-000001\n";
  expect("diff a b", 1,
         a_b +
             "momentum: 1 tensor equal\n"
             "  tensor      elements  different  largest difference\n"
             "  a@master           4          3                   1\n"
             "  a@variance            only in B\n");
  const sc::test::Outcome run = run_checkpoint("diff a c");
  EXPECT_EQ(run.code, 1);
  EXPECT_NE(run.text.find("  a@momentum         4          2  nan\n"), std::string::npos) << run.text;
}

TEST_F(CheckpointProcess, WeightsAreComparedWhateverTheyAreCalled) {
  save_values(*ops_, dir_ / "a", DType::f32,
              std::map<std::string, std::vector<float>>{{"master", {1, -3.5F}}});
  save_values(*ops_, dir_ / "b", DType::bf16,
              std::map<std::string, std::vector<std::uint16_t>>{{"parameters", {0x3f80, 0xc060}}});
  save_values(*ops_, dir_ / "c", DType::f32,
              std::map<std::string, std::vector<float>>{{"master", {1, 1, 1}}});
  expect("diff a b", 0, "A: a/step-000001\nB: b/step-000001\nmaster: 1 tensor equal\n");
  expect("diff b a", 0, "A: b/step-000001\nB: a/step-000001\nparameters: 1 tensor equal\n");
  expect("diff a c", 1,
         "A: a/step-000001\nB: c/step-000001\n"
         "  tensor    elements  different      largest difference\n"
         "  a@master      2, 3  another shape\n");
}

TEST_F(CheckpointProcess, TheNewestWholeOneIsTaken) {
  save_small("run", 20, 2);
  save_small("run", 30, 1);
  damage("run/step-000030/rank-0000.safetensors");
  const sc::test::Outcome run = run_checkpoint("export run out.safetensors");
  EXPECT_EQ(run.code, 0);
  EXPECT_EQ(run.text.rfind("passed over run/step-000030: run/step-000030/rank-0000.safetensors: tensor", 0),
            0U)
      << run.text;
  EXPECT_NE(run.text.find("wrote out.safetensors: 3 tensors of 1.35 kB in f32, from master of "
                          "run/step-000020\n"),
            std::string::npos)
      << run.text;
  damage("run/step-000020/rank-0000.safetensors");
  EXPECT_EQ(run_checkpoint("diff run run").code, 65);
  const sc::test::Outcome none = run_checkpoint("export run none.safetensors");
  EXPECT_EQ(none.code, 65);
  EXPECT_NE(none.text.find("error: run: none of its checkpoints is whole\n"), std::string::npos);
  EXPECT_EQ(ops_->kind(dir_ / "none.safetensors"), PathKind::absent);
}

TEST_F(CheckpointProcess, PendingWorkOfOneIsNamed) {
  using Values = std::map<std::string, std::vector<float>>;
  save_values(*ops_, dir_ / "a", DType::f32, Values{{"master", {1, 2}}, {"gradients", {3, 4}}});
  save_values(*ops_, dir_ / "b", DType::f32, Values{{"master", {1, 2}}});
  expect("diff a b", 0,
         "A: a/step-000001\nB: b/step-000001\n"
         "master: 1 tensor equal\n"
         "  tensor       elements  different  largest difference\n"
         "  a@gradients            only in A\n");
}

/// Writes the expected export without the program: values of value_at(), Conv1D transposed, padding rows cut.
void write_directly(FileOps& ops, const Path& path, DType dtype) {
  std::vector<SafeTensorSpec> specs = {{"transformer.wte.weight", dtype, {11, 6}},
                                       {"transformer.h.0.ln_1.weight", dtype, {6}},
                                       {"transformer.h.0.attn.c_attn.weight", dtype, {6, 18}},
                                       {"transformer.h.0.mlp.c_fc.weight", dtype, {900, 700}},
                                       {"transformer.ln_f.bias", dtype, {1}}};
  const auto file = ops.create(path);
  SafetensorsWriter out(*file, specs, hf_metadata({.vocab = 11}));
  for (std::size_t t = 0; t < specs.size(); ++t) {
    const std::int64_t seed = seed_of({kModel[t].name, "master"});
    const bool turned = t == 2 || t == 3;
    std::int64_t numel = 1;
    for (const std::int64_t n : specs[t].shape) numel *= n;
    std::vector<std::byte> bytes(static_cast<std::size_t>(numel * size_of(dtype)));
    for (std::int64_t i = 0; i < numel; ++i) {
      const std::int64_t columns = specs[t].shape.back(), rows = numel / columns;
      const std::int64_t ours = turned ? i % columns * rows + i / columns : i;
      put_number(&bytes[static_cast<std::size_t>(i * size_of(dtype))], dtype, value_at(seed, ours));
    }
    out.write(specs[t].name, bytes);
  }
  out.finish();
}

TEST_F(CheckpointProcess, AnExportEqualsAFileWrittenDirectly) {
  save(*ops_, dir_ / "run", 5, 3);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const std::string name(sc::name_of(dtype));
    EXPECT_EQ(run_checkpoint("export run/step-000005 " + name + ".safetensors --dtype " + name).code, 0);
    write_directly(*ops_, dir_ / "direct", dtype);
    EXPECT_TRUE(read_file(*ops_, dir_ / (name + ".safetensors")) == read_file(*ops_, dir_ / "direct"))
        << name;
  }
}

// ulimit -d bounds private memory. The largest tensor is 48 MB, and the program may take 1.5 times as much,
// 72 MB, with everything of its own.
TEST_F(CheckpointProcess, AnExportHoldsOneTensor) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own memory is private as well";
#endif
  const std::vector<TensorShape> model = {{"wte.weight", {11, 4}},
                                          {"h.0.mlp.c_fc.weight", {4096, 3072}},
                                          {"h.0.mlp.c_proj.weight", {3072, 4096}},
                                          {"h.1.mlp.c_fc.weight", {4096, 3072}}};
  save(*ops_, dir_ / "run", manifest_of(5, 1, model), cut(1, model, {"master"}));
  const std::int64_t kb = std::int64_t{4096} * 3072 * 4 / 1024;
  const auto with_limit = [&](std::int64_t limit) {
    return run_checkpoint("export run/step-000005 out.safetensors --replace",
                          "ulimit -d " + std::to_string(limit) + " && ");
  };
  const sc::test::Outcome run = with_limit(kb * 3 / 2);
  EXPECT_EQ(run.code, 0) << run.text;
  EXPECT_NE(with_limit(kb * 9 / 10).code, 0);  // the limit is one
}

TEST_F(CheckpointProcess, AnExportIsCompleteOrAbsent) {
  save_small("run", 5, 2);
  const Options options{.command = "export", .paths = {dir_ / "run/step-000005", dir_ / "out"}};
  for (std::int64_t nth = 0; nth < 4; ++nth) {
    FaultyFileOps full(*ops_, {.op = FileOp::write, .nth = nth, .error = ENOSPC});
    std::ostringstream log;
    EXPECT_EQ(input_error([&] { run(full, options, log); }).substr(0, 3), "73|") << nth;
    EXPECT_EQ(ops_->list(dir_.path()), std::vector<std::string>{"run"});
  }
  damage("run/step-000005/rank-0001.safetensors");  // the variance: not exported
  EXPECT_EQ(run_checkpoint("export run/step-000005 out").code, 0);
  ops_->create(dir_ / "run/step-000005/rank-0001.safetensors");
  EXPECT_EQ(run_checkpoint("export run/step-000005 other").code, 65);
  EXPECT_EQ(ops_->list(dir_.path()), (std::vector<std::string>{"out", "run"}));
}

TEST_F(CheckpointProcess, BadInputAndOutputAreRefusedOnce) {
  save_small("run", 5, 1);
  ops_->make_dir(dir_ / "empty");
  ops_->create(dir_ / "there");
  Manifest manifest = manifest_of(6, 1, kSmallModel);
  manifest.workload.erase("model.vocab");
  save(*ops_, dir_ / "odd", manifest, cut(1, kSmallModel));
  const std::string path = "check the path (it is relative to the working directory)\n";
  for (const char* command : {"show absent", "verify absent", "diff absent run", "diff run absent",
                              "export absent x", "show there/x"}) {
    const std::string word = std::string(command).ends_with("x") && command[0] == 's' ? "there/x" : "absent";
    expect(command, 65, "error: " + word + ": there is no such directory\n  fix: " + path);
  }
  expect("show empty", 65,
         "error: empty: holds no checkpoint\n"
         "  fix: give a directory step-NNNNNN, or one that holds such directories\n");
  expect("export run there", 73, "error: there: is there already\n  fix: --replace, or another name\n");
  expect("export run empty", 73, "error: empty: is a directory\n  fix: give the name of a file\n");
  expect(
      "export odd/step-000006 x", 65,
      "error: odd/step-000006/manifest.json: \"workload\" does not say model.vocab, the rows of wte.weight "
      "without padding\n  fix: export a checkpoint of this program's lessons\n");
  EXPECT_EQ(run_checkpoint("export run there/x").code, 73);
  EXPECT_EQ(run_checkpoint("export run/step-000005 there --replace").code, 0);
  EXPECT_EQ(run_checkpoint("show run >/dev/full").code, 73);
}

TEST_F(CheckpointProcess, ABadCommandLineIsRefusedOnce) {
  const std::map<std::string, std::string> all = {
      {"", "command line: no command\n  fix: checkpoint show DIR, or checkpoint --help\n"},
      {"shwo x",
       "shwo: there is no such command; did you mean show?\n  fix: one of show, verify, diff, export\n"},
      {"show", "command line: show takes 1 path, not 0\n  fix: checkpoint show DIR\n"},
      {"diff a", "command line: diff takes 2 paths, not 1\n  fix: checkpoint diff A B\n"},
      {"show a --dtype f32", "--dtype: belongs to export\n  fix: checkpoint show DIR\n"},
      {"export a b --entries", "--entries: belongs to show\n  fix: checkpoint export DIR OUT.safetensors\n"},
      {"export a b --dtype f64",
       "--dtype f64: not a type that weights are exported in\n  fix: --dtype f32, bf16 or f16\n"},
      {"export a b --dtype f16 --dtype f32", "--dtype: given twice\n  fix: give it once\n"},
      {"export a b --dtpye f16",
       "--dtpye: there is no such flag; did you mean --dtype?\n  fix: checkpoint --help\n"},
      {"export a b --dtype",
       "command line: Option 'dtype' is missing an argument\n  fix: checkpoint --help\n"}};
  for (const auto& [arguments, error] : all) expect(arguments, 64, "error: " + error);
  const sc::test::Outcome help = run_checkpoint("--help");
  EXPECT_EQ(help.code, 0);
  EXPECT_NE(help.text.find("\n  checkpoint verify runs/04_zero3/checkpoints\n"), std::string::npos);
}

TEST(CheckpointNumbers, RoundAsTheFormatsDo) {
  // All 16-bit floats convert to themselves, and a number halfway between two of them becomes the even one.
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = float_of_f16(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(float_of_f16(f16_of(value))));
    } else {
      ASSERT_EQ(f16_of(value), half);
    }
    const float brain = float_of_bf16(half);
    if (std::isnan(brain)) {
      EXPECT_TRUE(std::isnan(float_of_bf16(bf16_of(brain))));
    } else {
      ASSERT_EQ(bf16_of(brain), half);
    }
    if ((bits & 0x7fffU) >= 0x7bffU) continue;  // the next one is no number
    const auto even = static_cast<std::uint16_t>(half + (half & 1U));
    const auto middle = static_cast<float>((static_cast<double>(value) + float_of_f16(half + 1)) / 2);
    ASSERT_EQ(f16_of(middle), even) << bits;
    ASSERT_EQ(f16_of(std::nextafterf(middle, 0)), half);
    ASSERT_EQ(f16_of(std::nextafterf(middle, middle * 2)), half + 1);
  }
  const std::map<float, int> halves = {{65519.99F, 0x7bff}, {65520, 0x7c00}, {-1e30F, 0xfc00}, {0x1p-25F, 0}};
  for (const auto& [value, bits] : halves) EXPECT_EQ(f16_of(value), bits) << value;
  const std::map<float, int> brains = {{3.4e38F, 0x7f80},
                                       {1.00390625F, 0x3f80},  // halfway between 0x3f80 and 0x3f81
                                       {1.01171875F, 0x3f82},  // halfway between 0x3f81 and 0x3f82
                                       {std::nextafterf(1.00390625F, 2), 0x3f81}};
  for (const auto& [value, bits] : brains) EXPECT_EQ(bf16_of(value), bits) << value;
}

}  // namespace
}  // namespace sc::checkpoint
