// Tests Hugging Face weights in and out: we read the Python package's files, it reads ours
// (golden/check_export.py), and every refusal.
#include "common/model/hf_weights.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "common/base/check.h"
#include "common/model/hf_names.h"
#include "common/storage/atomic_dir.h"
#include "tests/model/golden.h"
#include "tests/model/model_fixture.h"
#include "tests/storage/temp_dir.h"
#include "tests/support/answers.h"

namespace sc {
namespace {

using test::golden_config, test::kGolden;

// A unit's vectors full of NaN, so that an element that is not filled shows.
UnitTensors empty_unit(const ParamLayout& layout, int unit, DType dtype = DType::f32) {
  const auto make = [&](Segment s) {
    return at::full({layout.unit(unit).size(s)}, std::numeric_limits<double>::quiet_NaN(), to_aten(dtype));
  };
  return {make(Segment::sharded), make(Segment::whole)};
}

std::vector<UnitTensors> load_all(const Path& path, const ParamLayout& layout, DType dtype = DType::f32) {
  const HfWeights weights(path, layout.config());
  std::vector<UnitTensors> units;
  for (int u = 0; u < layout.num_units(); ++u) {
    units.push_back(empty_unit(layout, u, dtype));
    weights.load_unit(layout, u, units.back());
  }
  return units;
}

Path temporary(const std::string& name) {
  const char* keep = std::getenv("STAGECRAFT_KEEP_EXPORT");  // set by golden/check_export.py
  return (keep != nullptr ? Path(keep) : Path(::testing::TempDir())) / name;
}

void export_all(const Path& path, const ParamLayout& layout, const std::vector<UnitTensors>& units,
                DType dtype = DType::f32) {
  const auto ops = posix_file_ops(Syncing::skip);
  atomic_write_file(*ops, path, [&](File& file) {
    export_hf_weights(file, layout, dtype, [&](int u) { return units[static_cast<std::size_t>(u)]; });
  });
}

// A file's tensors by name, as bytes, which a test changes and writes again to make a wrong file.
struct Edited {
  explicit Edited(const Path& path) {
    const SafetensorsReader in(path);
    for (const SafeTensor& t : in.tensors()) {
      const auto bytes = in.bytes(t);
      specs.push_back({t.name, *t.dtype, t.shape});
      data[t.name].assign(bytes.begin(), bytes.end());
    }
  }
  SafeTensorSpec& spec(const std::string& name) {
    for (SafeTensorSpec& s : specs)
      if (s.name == name) return s;
    throw std::out_of_range(name);
  }
  void erase(const std::string& name) {
    std::erase_if(specs, [&](const SafeTensorSpec& s) { return s.name == name; });
  }
  void add(const std::string& name, DType dtype, std::vector<std::int64_t> shape,
           std::vector<std::byte> bytes) {
    specs.push_back({name, dtype, std::move(shape)});
    data[name] = std::move(bytes);
  }
  Path write(const std::string& name) const {
    const Path path = Path(::testing::TempDir()) / name;
    const auto ops = posix_file_ops(Syncing::skip);
    atomic_write_file(*ops, path, [&](File& file) {
      SafetensorsWriter out(file, specs);
      for (const SafeTensorSpec& s : specs) out.write(s.name, data.at(s.name));
      out.finish();
    });
    return path;
  }
  std::vector<SafeTensorSpec> specs;
  std::map<std::string, std::vector<std::byte>> data;
};

std::string refusal(const Path& path, const GptConfig& config) {
  try {
    const HfWeights weights(path, config);
  } catch (const InputError& e) {
    EXPECT_EQ(e.code(), ExitCode::data);
    EXPECT_EQ(e.where(), path.string());
    return e.message() + " | " + e.fix();
  }
  return "accepted";
}

TEST(HfWeights, LoadsTransposedPaddedAndInEveryLayout) {
  for (const bool tied : {true, false}) {
    const Path path = kGolden / (tied ? "tied.safetensors" : "untied.safetensors");
    const SafetensorsReader file(path);
    const std::string prefix = tied ? "transformer." : "";
    for (const auto& [world, persist] :
         std::vector<std::pair<int, std::int64_t>>{{1, 0}, {3, 200}, {4, 2000}}) {
      const ParamLayout layout(golden_config(tied), WorldSize{world}, persist);
      const auto units = load_all(path, layout);
      for (int u = 0; u < layout.num_units(); ++u) {
        EXPECT_FALSE(units[u].sharded.isnan().any().item<bool>()) << "gaps are zero, unit " << u;
        EXPECT_TRUE(units[u].whole.numel() == 0 || !units[u].whole.isnan().any().item<bool>());
        for (const ParamTensor& t : layout.unit(u).tensors) {
          const SafeTensor& stored = file.at(t.name == "lm_head.weight" ? t.name : prefix + t.name);
          const at::Tensor theirs = at::empty(stored.shape);
          std::memcpy(theirs.mutable_data_ptr(), file.bytes(stored).data(), file.bytes(stored).size());
          at::Tensor ours = units[u].segment(t.segment).narrow(0, t.offset, t.numel()).view(t.shape);
          if (stored.shape[0] == 97) {
            EXPECT_EQ(ours.narrow(0, 97, 31).abs().max().item<double>(), 0.0);
            ours = ours.narrow(0, 0, 97);
          }
          const bool conv1d = t.shape.size() == 2 && t.name.starts_with("h.");
          EXPECT_TRUE(at::equal(ours, conv1d ? theirs.t() : theirs)) << t.name;
        }
      }
    }
  }
}

TEST(HfWeights, ExportGivesTheSameTensorsBack) {
  for (const bool tied : {true, false}) {
    const std::string name = tied ? "tied" : "untied";
    const ParamLayout layout(golden_config(tied), WorldSize{3}, 200);
    const auto units = load_all(kGolden / (name + ".safetensors"), layout);
    export_all(temporary(name + "_export.safetensors"), layout, units);
    const SafetensorsReader ours(temporary(name + "_export.safetensors")),
        theirs(kGolden / (name + ".safetensors"));
    EXPECT_EQ(ours.tensors().size(), theirs.tensors().size());
    EXPECT_EQ(ours.metadata().at("format"), "pt");
    for (const SafeTensor& t : theirs.tensors()) {
      const bool bare = tied || t.name == "lm_head.weight";
      const SafeTensor& mine = ours.at(bare ? t.name : "transformer." + t.name);
      EXPECT_EQ(mine.shape, t.shape) << t.name;
      const auto a = ours.bytes(mine), b = theirs.bytes(t);
      ASSERT_EQ(a.size(), b.size());
      EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size()), 0) << t.name;
    }
  }
}

TEST(HfWeights, SixteenBitFilesAndParameters) {
  const ParamLayout layout(golden_config(true), WorldSize{1});
  const auto exact = load_all(kGolden / "tied.safetensors", layout);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Path path = temporary(std::string(name_of(dtype)) + "_export.safetensors");
    export_all(path, layout, exact, dtype);
    EXPECT_EQ(SafetensorsReader(path).tensors()[0].dtype, dtype);
    const auto rounded = load_all(path, layout);
    const auto stored = load_all(kGolden / "tied.safetensors", layout, dtype);
    for (int u = 0; u < layout.num_units(); ++u) {
      EXPECT_TRUE(at::equal(rounded[u].sharded, exact[u].sharded.to(to_aten(dtype)).to(at::kFloat)));
      EXPECT_TRUE(at::equal(stored[u].sharded, exact[u].sharded.to(to_aten(dtype))));
    }
  }
}

TEST(HfWeights, HeadOfTheOtherKind) {
  // An untied model that reads a tied file starts with wte as its head.
  const ParamLayout layout(golden_config(false), WorldSize{1});
  const auto units = load_all(kGolden / "tied.safetensors", layout);
  const auto view = [&](int u, const char* name) {
    const ParamTensor& t = *layout.find(u, name);
    return units[u].sharded.narrow(0, t.offset, t.numel());
  };
  EXPECT_TRUE(at::equal(view(4, "lm_head.weight"), view(0, "wte.weight")));
  // A tied model accepts a file that repeats wte as lm_head, and refuses another matrix there.
  Edited copy(kGolden / "tied.safetensors");
  copy.add("lm_head.weight", DType::f32, {97, 32}, copy.data["transformer.wte.weight"]);
  EXPECT_EQ(refusal(copy.write("repeated.safetensors"), golden_config(true)), "accepted");
  // A head with the same numbers in another type counts as the same head.
  Edited narrow(kGolden / "tied.safetensors");
  std::vector<std::byte> halves;
  auto& wte = narrow.data["transformer.wte.weight"];
  for (std::size_t n = 0; n < wte.size(); n += 4) {
    wte[n] = wte[n + 1] = std::byte{0};
    halves.insert(halves.end(), {wte[n + 2], wte[n + 3]});
  }
  narrow.add("lm_head.weight", DType::bf16, {97, 32}, halves);
  EXPECT_EQ(refusal(narrow.write("narrow_head.safetensors"), golden_config(true)), "accepted");
  copy.data["lm_head.weight"][5] ^= std::byte{1};
  EXPECT_EQ(refusal(copy.write("other_head.safetensors"), golden_config(true)),
            "tensor 'lm_head.weight' differs from wte.weight, but the workload's model is tied | --set "
            "model.tied=off");
}

TEST(HfWeights, IgnoresMasksOfOldFiles) {
  Edited old(kGolden / "untied.safetensors");
  old.add("h.0.attn.bias", DType::u8, {1, 1, 2, 2}, std::vector<std::byte>(4));
  old.add("h.2.attn.masked_bias", DType::f32, {}, std::vector<std::byte>(4));
  EXPECT_EQ(refusal(old.write("old.safetensors"), golden_config(false)), "accepted");
}

// Wrappers of a model leave their names in the tensors' names.
TEST(HfWeights, NamesThatOthersGive) {
  test::expect_texts(
      {{our_name("transformer.h.0.ln_1.weight"), "h.0.ln_1.weight"},
       {our_name("wte.weight"), "wte.weight"},
       {our_name("_orig_mod.module.transformer.lm_head.weight"), "lm_head.weight"},
       {our_name("module.model._orig_mod.gpt.h.11._checkpoint_wrapped_module.mlp.c_fc.bias"),
        "h.11.mlp.c_fc.bias"},
       {our_name("_fsdp_wrapped_module.transformer.h.1._fsdp_wrapped_module.attn.c_attn.weight"),
        "h.1.attn.c_attn.weight"}});
  for (const char* other :
       {"score.weight", "v_head.summary.weight", "h.weight", "model.layers.0.mlp.weight", "", "wte", "."})
    EXPECT_EQ(our_name(other), "") << other;
  const ParamLayout layout(golden_config(true), WorldSize{1});
  const Path plain = kGolden / "tied.safetensors";
  const auto expected = load_all(plain, layout);
  for (const char* prefix :
       {"", "module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module.model.", "a.b.c."}) {
    Edited file(plain);
    for (SafeTensorSpec& spec : file.specs) {
      std::vector<std::byte> bytes = file.data.at(spec.name);
      spec.name = prefix + spec.name;
      file.data[spec.name] = std::move(bytes);
    }
    const auto units = load_all(file.write("prefixed.safetensors"), layout);
    for (std::size_t u = 0; u < units.size(); ++u)
      EXPECT_TRUE(at::equal(units[u].sharded, expected[u].sharded)) << prefix << u;
  }
  Edited twice(plain);
  twice.add("teacher.wte.weight", DType::f32, {97, 32}, twice.data["transformer.wte.weight"]);
  EXPECT_EQ(refusal(twice.write("twice.safetensors"), golden_config(true)),
            "tensors 'transformer.wte.weight' and 'teacher.wte.weight' are both wte.weight | a file with one "
            "model in it");
}

TEST(HfWeights, TheSharedMatrixUnderItsOtherName) {
  Edited file(kGolden / "tied.safetensors");
  file.add("lm_head.weight", DType::f32, {97, 32}, file.data["transformer.wte.weight"]);
  file.erase("transformer.wte.weight");
  const Path path = file.write("head_only.safetensors");
  for (const bool tied : {true, false}) {
    const ParamLayout layout(golden_config(tied), WorldSize{1});
    const auto expected = load_all(kGolden / "tied.safetensors", layout), units = load_all(path, layout);
    for (std::size_t u = 0; u < units.size(); ++u)
      EXPECT_TRUE(at::equal(units[u].sharded, expected[u].sharded));
  }
}

std::vector<std::string> notes(const Path& path, const GptConfig& config) {
  return HfWeights(path, config).notes();
}

TEST(HfWeights, AFileWithoutBiases) {
  Edited file(kGolden / "tied.safetensors");
  std::erase_if(file.specs, [](const SafeTensorSpec& s) { return s.name.ends_with(".bias"); });
  file.add("h.0.attn.bias", DType::u8, {1, 1, 2, 2}, std::vector<std::byte>(4));
  const Path path = file.write("no_bias.safetensors");
  EXPECT_EQ(notes(path, golden_config(true)),
            std::vector<std::string>{"has no biases: they begin at zero, and are trained"});
  const ParamLayout layout(golden_config(true), WorldSize{1});
  const auto units = load_all(path, layout), with = load_all(kGolden / "tied.safetensors", layout);
  for (int u = 0; u < layout.num_units(); ++u) {
    for (const ParamTensor& t : layout.unit(u).tensors) {
      const at::Tensor found = units[u].segment(t.segment).narrow(0, t.offset, t.numel());
      const at::Tensor before = with[u].segment(t.segment).narrow(0, t.offset, t.numel());
      EXPECT_TRUE(at::equal(found, t.name.ends_with(".bias") ? at::zeros_like(before) : before)) << t.name;
    }
  }
  file = Edited(kGolden / "tied.safetensors");
  file.erase("transformer.h.1.mlp.c_fc.bias");  // one of many is a damaged file
  EXPECT_EQ(refusal(file.write("one_gone.safetensors"), golden_config(true)).substr(0, 39),
            "tensor 'h.1.mlp.c_fc.bias' is missing |");
}

TEST(HfWeights, RowsOfPadding) {
  const GptConfig config = golden_config(true);
  for (const std::int64_t rows : {104, 112, 128, 256, 512, 1024}) {
    Edited file(kGolden / "tied.safetensors");
    file.spec("transformer.wte.weight").shape = {rows, 32};
    file.data["transformer.wte.weight"].resize(static_cast<std::size_t>(rows) * 32 * 4, std::byte{1});
    file.add("lm_head.weight", DType::f32, {rows, 32}, file.data["transformer.wte.weight"]);
    const Path path = file.write("padded.safetensors");
    ASSERT_EQ(refusal(path, config), "accepted") << rows;
    EXPECT_EQ(notes(path, config)[0], "has " + std::to_string(rows) +
                                          " rows in transformer.wte.weight, of which the first 97 "
                                          "are the vocabulary: the rest is padding, and left out");
    const ParamLayout layout(config, WorldSize{1});
    EXPECT_TRUE(at::equal(load_all(path, layout)[0].sharded,
                          load_all(kGolden / "tied.safetensors", layout)[0].sharded));
  }
  for (const std::int64_t rows : {98, 99, 100, 101, 120, 2048}) {  // another vocabulary
    Edited file(kGolden / "tied.safetensors");
    file.spec("transformer.wte.weight").shape = {rows, 32};
    file.data["transformer.wte.weight"].resize(static_cast<std::size_t>(rows) * 32 * 4);
    EXPECT_TRUE(
        refusal(file.write("other.safetensors"), config)
            .starts_with("tensor 'transformer.wte.weight' is [" + std::to_string(rows) + ", 32], the w"));
  }
}

TEST(HfWeights, HeadsOfOtherTasksAreLeftOut) {
  Edited file(kGolden / "tied.safetensors");
  file.add("score.weight", DType::f32, {2, 32}, std::vector<std::byte>(256));
  file.add("v_head.summary.weight", DType::i64, {1}, std::vector<std::byte>(8));
  EXPECT_EQ(notes(file.write("heads.safetensors"), golden_config(true)),
            std::vector<std::string>{
                "left out, since they are no part of a GPT-2: score.weight, v_head.summary.weight"});
  file.add("transformer.h.0.attn.q_norm.weight", DType::f32, {8}, std::vector<std::byte>(32));
  EXPECT_EQ(refusal(file.write("norm.safetensors"), golden_config(true)),
            "tensor 'transformer.h.0.attn.q_norm.weight' does not belong to the workload's model | a GPT-2 "
            "file: with this "
            "tensor it computes something else");
  // An unknown tensor inside the model, and a number that no block has, are refused.
  Edited inside(kGolden / "tied.safetensors");
  inside.add("transformer.adapter.0.weight", DType::f32, {8}, std::vector<std::byte>(32));
  EXPECT_EQ(
      refusal(inside.write("adapter.safetensors"), golden_config(true)),
      "tensor 'transformer.adapter.0.weight' does not belong to the workload's model | a GPT-2 file: with "
      "this tensor it computes something else");
  Edited deep(kGolden / "tied.safetensors");
  deep.add("transformer.h.99999999999999999999.ln_1.weight", DType::f32, {32}, std::vector<std::byte>(128));
  EXPECT_EQ(
      refusal(deep.write("deep.safetensors"), golden_config(true)),
      "tensor 'transformer.h.99999999999999999999.ln_1.weight' does not belong to the workload's model | a "
      "workload with the file's model: layers 4, vocab 97, width 32, context 32");
  // Another workload is no help if the file's shapes are the workload's already.
  Edited narrow(kGolden / "tied.safetensors");
  narrow.spec("transformer.ln_f.weight").shape = {16};
  narrow.data["transformer.ln_f.weight"].resize(64);
  EXPECT_EQ(refusal(narrow.write("narrow.safetensors"), golden_config(true)),
            "tensor 'transformer.ln_f.weight' is [16], the workload's model needs [32] | weights of a GPT-2, "
            "whose other sizes follow from its width d: c_attn 3 d, c_fc 4 d");
  Edited other(kGolden / "tied.safetensors");
  for (std::size_t n = 0; n < other.specs.size(); ++n) {
    const std::string name = "model.layers." + std::to_string(n) + ".weight";
    other.data[name] = other.data.at(other.specs[n].name);
    other.specs[n].name = name;
  }
  EXPECT_EQ(refusal(other.write("llama.safetensors"), golden_config(true)).substr(0, 75),
            "tensor 'wte.weight' is missing | a GPT-2 file; it holds other tensors, such");
}

TEST(HfWeights, OurOwnCheckpointsAreNamed) {
  const test::TempDir dir;
  const Path& folder = dir.path();
  const auto ops = posix_file_ops(Syncing::skip);
  make_dirs(*ops, folder / "step-000020");
  Edited file(kGolden / "tied.safetensors");
  file.add("wte.weight@master", DType::f32, {97, 32}, file.data["transformer.wte.weight"]);
  atomic_write_file(*ops, folder / "step-000020/rank-0000.safetensors",
                    read_file(*ops, file.write("rank.safetensors")));
  atomic_write_file(*ops, folder / "step-000020/manifest.json", "{}");
  for (const char* path :
       {"", "step-000020", "step-000020/rank-0000.safetensors", "step-000020/manifest.json"}) {
    const Path given = folder / path, named = given.has_extension() ? given.parent_path() : given;
    EXPECT_EQ(refusal(given, golden_config(true)),
              "is of a checkpoint of this program, which ranks have written in parts | checkpoint export " +
                  named.string() + " FILE.safetensors, then --init FILE.safetensors; or --resume " +
                  named.string() + ", to go on with its run");
  }
  make_dirs(*ops, folder / "run/checkpoints/step-000020");
  EXPECT_EQ(refusal(folder / "run", golden_config(true)),
            refusal(folder / "run/checkpoints", golden_config(true)));
  make_dirs(*ops, folder / "hf");
  atomic_write_file(*ops, folder / "hf/model.safetensors", "x");
  EXPECT_EQ(refusal(folder / "hf", golden_config(true)),
            "is a folder, and a file is to be read | " + (folder / "hf/model.safetensors").string());
}

// Differences in the computation that no shape shows: a file of this program stores them itself; other files
// have a config.json, if any.
TEST(HfWeights, WhatIsComputedOtherwiseIsRefused) {
  const test::TempDir folder;
  const auto ops = posix_file_ops(Syncing::skip);
  const Path beside = folder / "config.json", theirs = folder / "theirs.safetensors",
             ours = folder / "ours.safetensors";
  atomic_write_file(*ops, theirs, read_file(*ops, kGolden / "tied.safetensors"));
  const ParamLayout layout(golden_config(true), WorldSize{1});
  export_all(ours, layout, load_all(theirs, layout));
  const auto answer = [&](const Path& path, const std::string& config, std::int64_t heads = 4) {
    atomic_write_file(*ops, beside, config);
    GptConfig wanted = golden_config(true);
    wanted.heads = heads;
    try {
      const HfWeights weights(path, wanted);
    } catch (const InputError& e) {
      EXPECT_EQ(e.code(), ExitCode::data);
      return Path(e.where()).filename().string() + ": " + e.message() + "|" + e.fix();
    }
    return std::string("accepted");
  };
  const std::string plain = SafetensorsReader(ours).metadata().at("config.json");
  const auto with = [&](const std::string& key, const std::string& value) {
    const std::size_t at = plain.find("\"" + key + "\": ") + key.size() + 4;
    return plain.substr(0, at) + value + plain.substr(plain.find_first_of(",}", at));
  };
  const std::string either = "; or, if the config.json is not these weights', a folder of their own";
  EXPECT_EQ(answer(theirs, plain), "accepted");
  for (const auto& [key, value, here] :
       std::vector<std::array<std::string, 3>>{{"scale_attn_by_inverse_layer_idx", "true", "false"},
                                               {"scale_attn_weights", "false", "true"},
                                               {"activation_function", "\"gelu\"", "\"gelu_new\""},
                                               {"layer_norm_epsilon", "1e-06", "1e-05"},
                                               {"model_type", "\"gpt_neo\"", "\"gpt2\""},
                                               {"n_positions", "64", "32"}})
    EXPECT_EQ(answer(theirs, with(key, value)), "config.json: \"" + key + "\" is " + value +
                                                    ", and this run computes " + here +
                                                    "|weights of such a model" + either);
  EXPECT_EQ(answer(theirs, with("n_head", "2")),
            "config.json: \"n_head\" is 2, and this run computes 4|--set model.heads=2" + either);
  for (const std::string& same :
       {with("activation_function", "\"gelu_pytorch_tanh\""), with("layer_norm_epsilon", "0.00001"),
        with("vocab_size", "128"), std::string("{\"model\": {\"heads\": 2}}"), std::string("[]")})
    EXPECT_EQ(answer(theirs, same), "accepted") << same;
  EXPECT_TRUE(answer(theirs, "{\"n_head\": 4").starts_with("config.json:1:"));
  // Our own file ignores a config.json next to it, since several files may lie there.
  EXPECT_EQ(answer(ours, with("n_head", "2")), "accepted");
  EXPECT_EQ(answer(ours, plain, 8),
            "ours.safetensors: \"n_head\" is 4, and this run computes 8|--set model.heads=4" + either);
}

TEST(HfWeights, AFolderForTransformers) {
  const test::TempDir folder;
  const Path beside = folder / "config.json";
  const auto ops = posix_file_ops(Syncing::skip);
  write_hf_config(*ops, folder / "w.safetensors", golden_config(true));
  EXPECT_EQ(ops->kind(beside), PathKind::absent);
  write_hf_config(*ops, folder / "model.safetensors", golden_config(true));
  const std::string written = read_file(*ops, beside);
  EXPECT_EQ(written, hf_metadata(golden_config(true)).at("config.json"));
  write_hf_config(*ops, folder / "model.safetensors", golden_config(false));
  EXPECT_EQ(read_file(*ops, beside), written) << "what is there stays";
}

TEST(HfWeights, HalfOfTheMatricesTurnedRound) {
  Edited file(kGolden / "tied.safetensors");
  for (SafeTensorSpec& spec : file.specs) {
    if (spec.name.ends_with(".c_fc.weight")) spec.shape = {128, 32};
  }
  EXPECT_TRUE(refusal(file.write("half.safetensors"), golden_config(true))
                  .starts_with("tensor 'transformer.h.0.attn.c_attn.weight' stands as [in, out], and "
                               "'transformer.h.0.mlp.c_fc.weight' as [out, in] | "));
}

TEST(HfWeights, RefusalsNameTensorShapesAndFix) {
  const Path tied = kGolden / "tied.safetensors";
  const std::string model = "a workload with the file's model: layers 3, vocab 97, width 32, context 32";
  const std::tuple<std::int64_t GptConfig::*, std::int64_t, std::string> others[] = {
      {&GptConfig::vocab, 98, "'transformer.wte.weight' is [97, 32], the workload's model needs [98, 32]"},
      {&GptConfig::context, 24, "'transformer.wpe.weight' is [32, 32], the workload's model needs [24, 32]"},
      {&GptConfig::layers, 2, "'transformer.h.2.attn.c_attn.bias' does not belong to the workload's model"},
      {&GptConfig::layers, 4, "'h.3.ln_1.weight' is missing"}};
  for (const auto& [what, number, said] : others) {
    GptConfig c = golden_config(true);
    c.*what = number;
    EXPECT_EQ(refusal(tied, c), "tensor " + said + " | " + model);
  }
  Edited file(kGolden / "untied.safetensors");
  file.erase("ln_f.bias");
  EXPECT_EQ(
      refusal(file.write("gone.safetensors"), golden_config(false)),
      "tensor 'ln_f.bias' is missing | a GPT-2 file; it holds layers 3, vocab 97, width 32, context 32");
  file = Edited(kGolden / "untied.safetensors");
  file.spec("h.1.mlp.c_fc.weight").shape = {128, 32};  // not transposed
  EXPECT_EQ(
      refusal(file.write("flipped.safetensors"), golden_config(false)),
      "tensor 'h.1.mlp.c_fc.weight' is [128, 32], turned round, since the file's c_attn and c_fc need [32, "
      "128] | all matrices of a file one way: as GPT2LMHeadModel saves them ([in, out]), or as Linear layers "
      "have "
      "them");
  file = Edited(kGolden / "untied.safetensors");
  file.spec("h.1.ln_1.bias").dtype = DType::i32;
  EXPECT_EQ(refusal(file.write("integers.safetensors"), golden_config(false)),
            "tensor 'h.1.ln_1.bias' holds I32 numbers | weights saved as F32, BF16 or F16");
  EXPECT_EQ(refusal("no/such.safetensors", golden_config(true)).find("accepted"), std::string::npos);
}

}  // namespace
}  // namespace sc
