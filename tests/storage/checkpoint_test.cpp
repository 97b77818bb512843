// Tests undamaged checkpoints: names, sums, manifests, files, and any range read from any cuts.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <tuple>

#include "tests/storage/checkpoint_support.h"
#include "tests/support/file_ops_decorators.h"

namespace sc::checkpoint {
namespace {

using namespace sc::checkpoint::test;  // NOLINT

using Checkpoints = InTempDir;
using Json = nlohmann::ordered_json;

TEST(CheckpointNames, GoToTextAndBack) {
  const std::pair<Entry, std::string> all[] = {
      {{{"h.3.attn.c_attn.weight", "momentum"}, {0, 65536}, DType::f32},
       "h.3.attn.c_attn.weight@momentum[0:65536]"},
      {{{"a@b[0:1]", "parameters", 2}, {7, 9}, DType::bf16}, "a@b[0:1]@parameters.v2[7:9]"},
      {{{"c_proj.weight", "master"}, {0, 8192}, DType::f32, {64, 128, 192}},
       "c_proj.weight@master(64:128 of 192)[0:8192]"}};
  for (const auto& [entry, name] : all) {
    EXPECT_EQ(name_of(entry), name);
    EXPECT_EQ(entry_of_name(name, entry.dtype), entry);
  }
  for (const char* bad : {"",
                          "wte",
                          "wte@master",
                          "wte@[0:1]",
                          "@master[0:1]",
                          "wte@master[1:1]",
                          "wte@master[2:1]",
                          "wte@master[-1:1]",
                          "wte@master[01:2]",
                          "wte@master[0:1] ",
                          "wte@master[0:1",
                          "wte@master[0:]",
                          "wte@master.v0[0:1]",
                          "wte@master.v-1[0:1]",
                          "wte@Master[0:1]",
                          "wte@master.2[0:1]",
                          "wte@master[0:99999999999999999999]",
                          "wte@master(0:1 of 1)[0:1]",
                          "wte@master(0:2 of 1)[0:1]",
                          "wte@master(1:1 of 2)[0:1]",
                          "wte@master(-1:1 of 2)[0:1]",
                          "wte@master(0:1)[0:1]",
                          "wte@master(0:1 of 02)[0:1]",
                          "wte@master 0:1 of 2)[0:1]",
                          "wte@master(0 of 2)[0:1]"}) {
    EXPECT_FALSE(entry_of_name(bad, DType::f32)) << bad;
  }
}

TEST(CheckpointNames, OfGenerations) {
  const std::pair<std::int64_t, std::string> all[] = {
      {0, "step-000000"}, {400, "step-000400"}, {12345678, "step-12345678"}};
  for (const auto& [step, name] : all) {
    EXPECT_EQ(generation_name(step), name);
    EXPECT_EQ(step_of_name(name), step);
  }
  for (const char* bad : {"step-", "step-400", "step-0000400", "step-00400x", "step--00400", "xstep-000400",
                          ".step-000400.tmp-0", "step-000400 "}) {
    EXPECT_FALSE(step_of_name(bad)) << bad;
  }
}

TEST(CheckpointSums, GoToTextAndBack) {
  const FileSums sums{"rank-0001.safetensors", 1000, 100, 0x1, {0xffffffffffffffffU, 0, 0xab}};
  const std::string text = text_of(sums);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_EQ(sums_of_text(text, "rank 1"), sums);
  EXPECT_EQ(
      input_error([&] { (void)sums_of_text("{}", "rank 1"); }),
      "65|rank 1: \"name\" is missing|the file is damaged or another program's: use another checkpoint");
  EXPECT_EQ(input_error([&] { (void)sums_of_text("nonsense", "rank 1"); }),
            "65|rank 1:1:2: is not JSON: invalid literal|the file is damaged or another program's: use "
            "another checkpoint");
  EXPECT_FALSE(sums_of_hex("0123456789abcdeF"));
  EXPECT_FALSE(sums_of_hex("0123456789abcde"));
}

TEST(CheckpointManifest, GoesToTextAndBack) {
  Manifest manifest = manifest_of(400, 2);
  manifest.files = {{"rank-0000.safetensors", 8, 8, 1, {}}, {"rank-0001.safetensors", 9, 8, 2, {3}}};
  EXPECT_EQ(manifest_of_text(text_of(manifest), "m"), manifest);
  manifest.extra = "3";
  EXPECT_THROW((void)text_of(manifest), std::logic_error);
}

/// The manifest of a checkpoint of one rank, without its checksum.
Json one_ranks_manifest() {
  Manifest manifest = manifest_of(400, 1);
  manifest.files = {{"rank-0000.safetensors", 8, 8, 1, {3}}};
  Json json = Json::parse(text_of(manifest));
  json.erase("xxh3");
  return json;
}

/// The text of a manifest, with a valid checksum.
std::string text_with_sum(const Json& json) {
  const std::string rest = json.dump(1).substr(2) + "\n";
  return "{\"xxh3\": \"" + hex_of(sum_of(as_bytes(rest))) + "\",\n" + rest;
}

std::string refusal_of_manifest(const Json& json) {
  return without_fix(input_error([&] { (void)manifest_of_text(text_with_sum(json), "M"); }));
}

/// `json` with `value` at the JSON pointer `at`.
Json with_value(Json json, const char* at, const Json& value) {
  json[Json::json_pointer(at)] = value;
  return json;
}

TEST(CheckpointManifest, EveryKeyIsNeededInItsType) {
  EXPECT_EQ(refusal_of_manifest(one_ranks_manifest()).substr(0, 2), "no");
  int keys = 0;
  const std::pair<const char*, std::string> objects[] = {{"", ""},
                                                         {"/scaler", "scaler."},
                                                         {"/data", "data."},
                                                         {"/files/0", "files[0]."},
                                                         {"/tensors/0", "tensors[0]."}};
  for (const auto& [at, path] : objects) {
    const Json all = one_ranks_manifest(), object = all[Json::json_pointer(at)];
    for (const auto& [key, value] : object.items()) {
      if (key == "rows" || key == "arithmetic") continue;  // checkpoints of before do not have them
      Json without = object, wrong = object;
      without.erase(key);
      wrong[key] = nullptr;
      EXPECT_EQ(refusal_of_manifest(with_value(all, at, without)), "65|M: \"" + path + key + "\" is missing");
      EXPECT_PRED_FORMAT2(::testing::IsSubstring, path + key,
                          refusal_of_manifest(with_value(all, at, wrong)));
      ++keys;
    }
  }
  EXPECT_EQ(keys, 17 + 3 + 2 + 5 + 2);
}

// A manifest from before rows and tokens were counted implies them: steps times the workload's batch.
TEST(CheckpointManifest, WithoutRowsStepsSayHowMany) {
  Json older = with_value(one_ranks_manifest(), "/workload/batch.global", "12");
  for (const char* key : {"rows", "tokens", "arithmetic"}) older.erase(key);
  const Manifest read = manifest_of_text(text_with_sum(older), "M");
  EXPECT_EQ(read.rows, 400 * 12);
  EXPECT_EQ(read.tokens, 400 * 1536);
  EXPECT_EQ(read.arithmetic, "") << "not known";
  for (const char* global : {"", "x", "0", "-12"})
    EXPECT_EQ(refusal_of_manifest(with_value(older, "/workload/batch.global", global)),
              "65|M: \"workload\" does not say batch.global, the rows of a step");
  EXPECT_EQ(refusal_of_manifest(with_value(older, "/step", std::int64_t{1} << 60)),
            "65|M: \"step\" is larger than a run can get");
}

TEST(CheckpointManifest, WrongValuesAreNamed) {
  const std::string whole = " must be a whole number from 0 to 1152921504606846976, not ";
  const std::tuple<const char*, Json, std::string> all[] = {
      {"/format", 2, "\"format\" must be 1, as this program reads it, not 2"},
      {"/step", -1, "\"step\"" + whole + "-1"},
      {"/step", "5", "\"step\"" + whole + "\"5\""},
      {"/rows", (std::int64_t{1} << 60) + 1, "\"rows\"" + whole + "1152921504606846977"},
      {"/arithmetic", 3, "\"arithmetic\" must be a text, not 3"},
      {"/world", 2, "\"files\" has 1 files of 2 ranks"},
      {"/workload/model.vocab", 11, "\"workload.model.vocab\" must be a text, not 11"},
      {"/extra", 11, "\"extra\" must be an object, not 11"},
      {"/files/0/name", "../x", "\"files[0].name\" must be \"rank-0000.safetensors\", not \"../x\""},
      {"/files/0/header_sum", "12", "\"files[0].header_sum\" must be check sums of 16 hexadecimal digits"},
      {"/tensors/0/shape", Json::array({1, -2}), "\"tensors[0].shape[1]\"" + whole + "-2"},
      {"/tensors/0/shape", Json::array({std::int64_t{1} << 60, 8}),
       "\"tensors[0].shape\" has no elements, or more than 64 bits can count"}};
  for (const auto& [at, value, said] : all)
    EXPECT_EQ(refusal_of_manifest(with_value(one_ranks_manifest(), at, value)), "65|M: " + said);
}

TEST_F(Checkpoints, CallsThatContradictTheAnnouncementAreErrors) {
  const std::vector<Entry> two = {{{"a", "master"}, {0, 2}, DType::f32},
                                  {{"b", "master"}, {0, 1}, DType::f32}};
  const std::vector<std::byte> eight(8);
  FileWriter out(*ops_, dir_.path(), {1, 0}, two);
  EXPECT_THROW(out.write(1, eight), std::logic_error);
  EXPECT_THROW((void)out.finish(), std::logic_error);
  out.write(0, eight);
  EXPECT_THROW(out.write(1, eight), std::logic_error);
  out.write(1, std::span(eight).first(4));
  EXPECT_THROW(out.write(2, eight), std::logic_error);
  (void)out.finish();
  EXPECT_THROW((void)out.finish(), std::logic_error);
  const std::vector<Entry> bad = {{{"a", "no such"}, {0, 2}, DType::f32}};
  EXPECT_THROW(FileWriter(*ops_, dir_.path(), {1, 0}, bad), std::logic_error);
  EXPECT_THROW(FileWriter(*ops_, dir_.path(), {1, 0}, {two[0], two[0]}), std::logic_error);
}

TEST_F(Checkpoints, SumsCoverEveryByteAndNeedNoWholeEntry) {
  const Entries entries = cut(1);
  CountingFileOps counting(*ops_);
  Manifest manifest = manifest_of(5, 1);
  write_files(counting, dir_.path(), entries, manifest);
  const FileSums& sums = manifest.files[0];
  const std::string content = read_file(*ops_, dir_ / "rank-0000.safetensors");
  EXPECT_EQ(sums.bytes, static_cast<std::int64_t>(content.size()));
  EXPECT_EQ(sums.header_sum,
            sum_of(as_bytes(content.substr(0, static_cast<std::size_t>(sums.header_bytes)))));
  auto rest = as_bytes(content).subspan(static_cast<std::size_t>(sums.header_bytes));
  std::vector<std::uint64_t> expected;
  for (const Entry& entry : entries[0]) {
    auto bytes = rest.first(static_cast<std::size_t>(entry.range.size() * 4));
    rest = rest.subspan(bytes.size());
    while (!bytes.empty()) {
      const auto block = bytes.first(std::min<std::size_t>(bytes.size(), 1 << 20));
      expected.push_back(sum_of(block));
      bytes = bytes.subspan(block.size());
    }
  }
  EXPECT_TRUE(rest.empty());
  EXPECT_EQ(sums.block_sums, expected);
  // However small the pieces, the writer issues one write for the header and one for each block.
  EXPECT_EQ(counting.of(FileOp::write).calls, static_cast<std::int64_t>(expected.size()) + 1);
  EXPECT_EQ(counting.of(FileOp::sync).calls, 1);
  EXPECT_EQ(counting.of(FileOp::write).bytes, Bytes(sums.bytes));
}

TEST_F(Checkpoints, TheDiskIsToldToKeepUp) {
  CountingFileOps counting(*ops_);
  const std::int64_t n = 300 * kBlock;
  FileWriter out(counting, dir_.path(), {1, 0}, {{{"a", "master"}, {0, n}, DType::u8}});
  const std::vector<std::byte> piece(static_cast<std::size_t>(kBlock));
  for (int i = 0; i < 300; ++i) out.write(0, piece);
  EXPECT_EQ(counting.of(FileOp::sync).calls, n / kSyncEvery);
  (void)out.finish();
  EXPECT_EQ(counting.of(FileOp::sync).calls, n / kSyncEvery + 1);
}

TEST_F(Checkpoints, TheRoomIsKnownBefore) {
  const Entries entries = cut(4);
  Bytes needed{0};
  for (std::size_t r = 0; r < entries.size(); ++r) {
    needed += bytes_needed({7, static_cast<std::int64_t>(r)}, entries[r]);
  }
  const Path path = save(*ops_, dir_.path(), 7, 4);
  Bytes taken{0};
  for (const std::string& name : ops_->list(path)) taken += ops_->size(path / name);
  EXPECT_GE(needed + Bytes(1'000'000), taken);
  EXPECT_LE(needed, taken + Bytes(4096));
  require_free_space(*ops_, dir_ / "not/yet/there", Bytes(1));
  const std::string error =
      error_of([&] { require_free_space(*ops_, dir_ / "x", Bytes(std::int64_t{1} << 60)); });
  EXPECT_EQ(error.rfind("73|DIR/x: a checkpoint takes 1152921.50 TB, ", 0), 0U) << error;
  const std::string no_inodes =
      error_of([&] { require_free_space(*ops_, dir_ / "x", Bytes(1), 2'000'000'000); });
  EXPECT_EQ(no_inodes.rfind("73|DIR/x: checkpoints take 2000000000 new files and folders, ", 0), 0U)
      << no_inodes;
}

// Four ranks hold three ranges of a matrix's columns; ranks 0 and 3 divide the middle range.
Entries in_columns() {
  Entries entries = cut(4, kSmallModel);
  for (std::vector<Entry>& of_rank : entries)
    std::erase_if(of_rank, [](const Entry& entry) { return entry.key.tensor == "h.0.attn.c_attn.weight"; });
  for (const std::string& purpose : kPurposes) {
    const Key key{"h.0.attn.c_attn.weight", purpose};  // [18, 6]
    entries[2].push_back({key, {0, 18}, DType::f32, {0, 1, 6}});
    entries[0].push_back({key, {0, 20}, DType::f32, {1, 4, 6}});
    entries[3].push_back({key, {20, 54}, DType::f32, {1, 4, 6}});
    entries[1].push_back({key, {0, 36}, DType::f32, {4, 6, 6}});
  }
  return entries;
}

TEST_F(Checkpoints, ColumnsAreReadAsTheWholeTensor) {
  const Path saved = save(*ops_, dir_ / "x", manifest_of(3, 4, kSmallModel), in_columns());
  Reader reader(*ops_, saved);
  const Key key{"h.0.attn.c_attn.weight", "momentum"};
  for (std::int64_t begin = 0; begin < 108; ++begin) {
    for (std::int64_t end = begin; end <= 108; end += 7) {
      std::vector<float> read(static_cast<std::size_t>(end - begin));
      reader.read(key, {begin, end}, std::as_writable_bytes(std::span(read)));
      ASSERT_EQ(read, values_of(key, {begin, end})) << begin << " to " << end;
    }
  }
}

TEST_F(Checkpoints, ColumnsThatDoNotFitTogetherAreNamed) {
  const auto expect = [&](const std::string& what, const auto& change) {
    Entries entries = in_columns();
    change(entries);
    EXPECT_PRED_FORMAT2(::testing::IsSubstring, what, input_error([&] {
                          save(*ops_, dir_ / "x", manifest_of(3, 4, kSmallModel), entries);
                        }));
  };
  const std::string name = "h.0.attn.c_attn.weight@master";
  const auto in_columns_of_six = [](const Entry& x) { return x.columns.of == 6; };
  const std::pair<std::size_t, std::string> missing[] = {
      {2, "columns 0 to 1 of 6"}, {1, "columns 4 to 6 of 6"}, {0, "elements 0 to 20"}};
  for (const auto& [rank, what] : missing)
    expect(what + " of " + name + " are in no file",
           [&, rank = rank](Entries& e) { std::erase_if(e[rank], in_columns_of_six); });
  const auto first = [&](std::vector<Entry>& entries) -> Entry& {
    return *std::ranges::find_if(entries, in_columns_of_six);
  };
  expect(name + "(3:6 of 6)[0:36] overlaps", [&](Entries& e) { first(e[1]).columns.begin = 3; });
  expect("sees other rows than", [&](Entries& e) {
    Entry& changed = first(e[1]);
    changed.columns = {10, 12, 12}, changed.range.end = 18;
  });
  expect("the tensor has 108 elements", [&](Entries& e) { first(e[1]).range.end = 37; });
  expect("the tensor has 108 elements", [&](Entries& e) { first(e[1]).columns = {4, 6, 7}; });
}

TEST_F(Checkpoints, RoundTrip) {
  const Path path = save(*ops_, dir_.path(), 400, 3);
  Reader reader(*ops_, path);
  Manifest expected = manifest_of(400, 3);
  expected.files = reader.manifest().files;
  EXPECT_EQ(reader.manifest(), expected);
  EXPECT_EQ(reader.keys().size(), kModel.size() * kPurposes.size());
  EXPECT_EQ(reader.weights(), "master");
  for (const Key& key : reader.keys()) {
    const Range all{0, reader.numel(key.tensor)};
    EXPECT_EQ(reader.dtype(key), DType::f32);
    EXPECT_EQ(read(reader, key, all), values_of(key, all)) << text_of(key);
  }
  reader.verify();
}

TEST_F(Checkpoints, AnyRangeComesFromAnyCuts) {
  const Path path = save(*ops_, dir_.path(), 400, 4);
  for (std::int64_t world = 1; world <= 7; ++world) {
    Reader reader(*ops_, path);  // each reads what its new layout says, the last rank first
    for (const Key& key : reader.keys()) {
      const std::int64_t numel = reader.numel(key.tensor);
      for (std::int64_t rank = world - 1; rank >= 0; --rank) {
        const Range range{numel * rank / world, numel * (rank + 1) / world};
        ASSERT_EQ(read(reader, key, range), values_of(key, range)) << text_of(key) << " " << range.begin;
      }
    }
  }
  Reader reader(*ops_, path);
  const Key big{"h.0.mlp.c_fc.weight", "variance"};
  for (std::int64_t begin : {0, 39374, 39375, 39376, 157499, 262143, 262144, 629999}) {
    for (std::int64_t size : {1, 2, 300, 100000}) {
      const Range range{begin, std::min<std::int64_t>(begin + size, 630000)};
      ASSERT_EQ(read(reader, big, range), values_of(big, range)) << begin << " + " << size;
    }
  }
  EXPECT_EQ(read(reader, big, {5, 5}), std::vector<float>{});
}

TEST_F(Checkpoints, WhatIsNotHeldIsRefused) {
  Manifest manifest = manifest_of(1, 2, kSmallModel);
  Entries entries = cut(2, kSmallModel);
  entries[1].push_back({{"wte.weight", "parameters", 1}, {10, 20}, DType::bf16});
  const Path path = dir_ / "x";
  ops_->make_dir(path);
  for (std::size_t r = 0; r < 2; ++r) {
    FileWriter out(*ops_, path, {1, static_cast<std::int64_t>(r)}, entries[r]);
    for (std::size_t e = 0; e < entries[r].size(); ++e) {
      out.write(e, std::vector<std::byte>(
                       static_cast<std::size_t>(entries[r][e].range.size() * size_of(entries[r][e].dtype))));
    }
    manifest.files.push_back(out.finish());
  }
  ops_->create(path / kManifestName)->append(as_bytes(text_of(manifest)));
  Reader reader(*ops_, path);
  const Key old{"wte.weight", "parameters", 1};
  EXPECT_TRUE(reader.holds(old));
  EXPECT_EQ(reader.dtype(old), DType::bf16);
  std::vector<std::byte> out(20);
  reader.read(old, {10, 20}, out);
  const auto refusal = [&](const Key& key, Range range, std::size_t size) {
    out.resize(size);
    return without_fix(error_of([&] { reader.read(key, range, out); }));
  };
  EXPECT_EQ(refusal(old, {9, 12}, 6),
            "65|DIR/x: elements 9 to 12 of wte.weight@parameters.v1 are in no file");
  EXPECT_EQ(refusal(old, {15, 25}, 20),
            "65|DIR/x: elements 20 to 25 of wte.weight@parameters.v1 are in no file");
  EXPECT_EQ(refusal({"wte.weight", "gradients"}, {0, 1}, 4),
            "65|DIR/x: elements 0 to 96 of wte.weight@gradients are in no file");
  EXPECT_EQ(refusal({"wpe.weight", "master"}, {0, 1}, 4),
            "65|DIR/x: has no tensor \"wpe.weight\": it is another model's");
  EXPECT_EQ(refusal({"wte.weight", "master"}, {90, 97}, 28),
            "65|DIR/x: elements 96 to 97 of wte.weight@master are in no file");
  EXPECT_THROW(reader.read({"wte.weight", "master"}, {0, 2}, out), std::logic_error);  // 8 bytes are wanted
  EXPECT_THROW(reader.read({"wte.weight", "master"}, {-1, 6}, out), std::logic_error);
}

TEST_F(Checkpoints, PartsOfAVerificationTogetherReadAll) {
  const Path path = save(*ops_, dir_.path(), 1, 3);
  Reader intact(*ops_, path);
  EXPECT_EQ(intact.blocks(), 39);
  for (const FileSums& sums : intact.manifest().files) {
    const auto file = ops_->open_write(path / sums.name);
    file->write_at(
        std::vector<std::byte>(static_cast<std::size_t>(sums.bytes - sums.header_bytes), std::byte{0x5a}),
        Bytes(sums.header_bytes));
  }
  for (std::int64_t parts : {1, 2, 5}) {
    int refused = 0;
    for (std::int64_t part = 0; part < parts; ++part) {
      Reader reader(*ops_, path);
      if (input_error([&] { reader.verify(part, parts); }) != "no InputError") ++refused;
    }
    EXPECT_EQ(refused, parts);
  }
}

/// Private memory of this process in kB.
std::int64_t anonymous_kb() {
  std::ifstream status("/proc/self/status");
  std::string word;
  std::int64_t kb = 0;
  while (status >> word && word != "RssAnon:") {
  }
  status >> kb;
  return kb;
}

TEST_F(Checkpoints, ReadingTakesTheMemoryOfAPiece) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own memory hides it";
#endif
  const std::vector<TensorShape> model = {{"a", {8 << 20}}};  // 32 MB
  const Path path = save(*ops_, dir_.path(), manifest_of(1, 3, model), cut(3, model, {"master"}));
  Reader reader(*ops_, path);
  std::vector<std::byte> piece(std::size_t{1} << 20);
  const std::int64_t before = anonymous_kb();
  std::int64_t most = 0;
  for (std::int64_t begin = 0; begin < 8 << 20; begin += 1 << 18) {
    reader.read({"a", "master"}, {begin, begin + (1 << 18)}, piece);
    most = std::max(most, anonymous_kb() - before);
  }
  EXPECT_LT(most, 2048);
}

// Leaves a checkpoint for checkpoint_python_test.sh to read.
TEST_F(Checkpoints, KeptForPython) {
  const char* keep = std::getenv("STAGECRAFT_KEEP_CHECKPOINT");
  if (keep == nullptr) GTEST_SKIP() << "checkpoint_python_test.sh asks for it";
  save(*ops_, keep, 400, 4);
}

}  // namespace
}  // namespace sc::checkpoint
