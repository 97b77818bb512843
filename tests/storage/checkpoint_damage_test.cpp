// Tests that incomplete, damaged and mixed-up checkpoints are refused, with the file and, within it, the
// tensor.
#include <algorithm>

#include "common/base/counter_random.h"
#include "common/storage/safetensors.h"
#include "tests/storage/checkpoint_support.h"

namespace sc::checkpoint {
namespace {

using namespace sc::checkpoint::test;  // NOLINT

class Damaged : public InTempDir {
 protected:
  /// The error of reading a checkpoint of these entries, which need not cover all tensors.
  std::string refusal_of(const Entries& entries, const Manifest& wanted = manifest_of(1, 2, kSmallModel)) {
    const Path path = dir_ / "x";
    remove_tree(*ops_, path);
    ops_->make_dir(path);
    Manifest manifest = wanted;
    for (std::size_t r = 0; r < entries.size(); ++r) {
      FileWriter out(*ops_, path, {1, static_cast<std::int64_t>(r)}, entries[r]);
      for (std::size_t e = 0; e < entries[r].size(); ++e) {
        const std::int64_t bytes = entries[r][e].range.size() * size_of(entries[r][e].dtype);
        out.write(e, std::vector<std::byte>(static_cast<std::size_t>(bytes)));
      }
      manifest.files.push_back(out.finish());
    }
    ops_->create(path / kManifestName)->append(as_bytes(text_of(manifest)));
    return refusal(path);
  }
  std::string refusal(const Path& path) {
    return without_fix(error_of([&] { Reader(*ops_, path).verify(); }));
  }
  std::byte byte_of(const Path& path, std::int64_t at) {
    std::byte byte{};
    ops_->open_read(path)->read_at({&byte, 1}, Bytes(at));
    return byte;
  }
};

TEST_F(Damaged, HolesAreNamed) {
  const Entries whole = cut(2, kSmallModel);
  EXPECT_EQ(refusal_of(whole), "no InputError");
  for (std::size_t rank = 0; rank < 2; ++rank) {
    for (std::size_t e = 0; e < whole[rank].size(); ++e) {
      Entries entries = whole;
      const Entry lost = entries[rank][e];
      entries[rank].erase(entries[rank].begin() + static_cast<std::ptrdiff_t>(e));
      const std::string missing = refusal_of(entries);
      EXPECT_EQ(missing, "65|DIR/x: elements " + std::to_string(lost.range.begin) + " to " +
                             std::to_string(lost.range.end) + " of " + text_of(lost.key) + " are in no file");
    }
  }
  Entries entries = whole;
  entries[0][0].range.end -= 1;
  EXPECT_EQ(refusal_of(entries), "65|DIR/x: elements 23 to 24 of wte.weight@master are in no file");
  entries = whole;
  entries[0].front().range.begin += 1;
  EXPECT_EQ(refusal_of(entries), "65|DIR/x: elements 0 to 1 of wte.weight@master are in no file");
}

TEST_F(Damaged, APurposeOrTheWeightsMissing) {
  Entries entries = cut(2, kSmallModel);
  entries[0].push_back({{"wte.weight", "gradients"}, {0, 96}, DType::f32});  // of other tensors as well then
  EXPECT_EQ(refusal_of(entries),
            "65|DIR/x: elements 0 to 108 of h.0.attn.c_attn.weight@gradients are in no file");
  EXPECT_EQ(refusal_of(cut(2, kSmallModel, {"momentum", "variance"})),
            "65|DIR/x: elements 0 to 96 of wte.weight@parameters are in no file");
  EXPECT_EQ(refusal_of(cut(2, kSmallModel, {"parameters"})), "no InputError");
  entries = cut(2, kSmallModel);  // older versions may have holes
  entries[0].push_back({{"wte.weight", "parameters", 3}, {5, 9}, DType::bf16});
  EXPECT_EQ(refusal_of(entries), "no InputError");
}

TEST_F(Damaged, OverlapsAndStrangersAreNamed) {
  const Entries whole = cut(2, kSmallModel);
  Entries entries = whole;
  entries[1][0].range.begin -= 1;
  EXPECT_EQ(refusal_of(entries),
            "65|DIR/x/rank-0001.safetensors: wte.weight@master[23:96] overlaps wte.weight@master[0:24] of "
            "rank-0000.safetensors");
  entries = whole;
  entries[1].push_back({{"wte.weight", "parameters", 1}, {0, 6}, DType::f32});
  entries[1].push_back({{"wte.weight", "parameters", 1}, {5, 9}, DType::f32});
  EXPECT_EQ(refusal_of(entries),
            "65|DIR/x/rank-0001.safetensors: wte.weight@parameters.v1[5:9] overlaps "
            "wte.weight@parameters.v1[0:6] of rank-0001.safetensors");
  entries = whole;
  entries[1][0].range.end += 1;
  EXPECT_EQ(refusal_of(entries),
            "65|DIR/x/rank-0001.safetensors: wte.weight@master[24:97]: the tensor has 96 elements");
  entries = whole;
  entries[1].push_back({{"wpe.weight", "master"}, {0, 1}, DType::f32});
  EXPECT_EQ(refusal_of(entries),
            "65|DIR/x/rank-0001.safetensors: wpe.weight@master[0:1]: the manifest has no such tensor");
  entries = whole;
  entries[1][0].dtype = DType::bf16;
  EXPECT_EQ(refusal_of(entries),
            "65|DIR/x/rank-0001.safetensors: wte.weight@master[24:96] is bf16, but wte.weight@master[0:24] "
            "of rank-0000.safetensors is f32");
}

TEST_F(Damaged, NotACheckpoint) {
  EXPECT_EQ(refusal(dir_ / "absent"), "65|DIR/absent: there is no such directory");
  ops_->make_dir(dir_ / "empty");
  EXPECT_EQ(refusal(dir_ / "empty"), "65|DIR/empty: is not a checkpoint: it holds no manifest.json");
  ops_->create(dir_ / "empty/manifest.json")->append(as_bytes("{}"));
  EXPECT_EQ(refusal(dir_ / "empty"),
            "65|DIR/empty/manifest.json: does not begin as a checkpoint's manifest does");
  EXPECT_EQ(refusal(dir_ / "empty/manifest.json"), "65|DIR/empty/manifest.json: there is no such directory");
}

TEST_F(Damaged, FilesOfOthersAreRefused) {
  const Path a = save(*ops_, dir_.path(), 1, 3), b = save(*ops_, dir_.path(), 2, 3);
  const std::string header_or_file = ": the header is damaged, or the file is another checkpoint's or rank's";
  const auto replaced = [&](const Path& from, const std::string& name) {  // a's file by another one
    std::filesystem::rename(a / name, dir_ / "kept");
    std::filesystem::copy(from, a / name);
    const std::string said = refusal(a);
    std::filesystem::remove(a / name);
    std::filesystem::rename(dir_ / "kept", a / name);
    return said;
  };
  const std::string zero = "rank-0000.safetensors", one = "rank-0001.safetensors";
  EXPECT_EQ(replaced(b / zero, zero), "65|DIR/step-000001/" + zero + header_or_file);
  EXPECT_EQ(replaced(b / kManifestName, kManifestName),
            "65|DIR/step-000001: its manifest is of step 2: another checkpoint was given this name");
  EXPECT_NE(replaced(a / one, zero).find("65|DIR/step-000001/" + zero + ": has "), std::string::npos);
  // Another run's checkpoint has the same step and cuts but other values, so the refusal must name the
  // damaged place.
  Manifest other = manifest_of(1, 3);
  Entries entries = cut(3);
  const Path foreign = dir_ / "foreign";
  ops_->make_dir(foreign);
  for (std::size_t r = 0; r < 3; ++r) {
    FileWriter out(*ops_, foreign, {1, static_cast<std::int64_t>(r)}, entries[r]);
    for (std::size_t e = 0; e < entries[r].size(); ++e) {
      out.write(e, std::vector<std::byte>(static_cast<std::size_t>(entries[r][e].range.size() * 4)));
    }
    (void)out.finish();
  }
  EXPECT_NE(
      replaced(foreign / one, one)
          .find("65|DIR/step-000001/" + one + ": tensor wte.weight@master is damaged: the 128 bytes at"),
      std::string::npos);
  EXPECT_EQ(refusal(a), "no InputError");
  std::filesystem::copy(b / one, a / "rank-0003.safetensors");
  EXPECT_EQ(refusal(a),
            "65|DIR/step-000001/rank-0003.safetensors: is not of this checkpoint, which 3 ranks wrote");
  std::filesystem::remove(a / "rank-0003.safetensors");
  std::filesystem::remove(a / one);
  EXPECT_EQ(refusal(a), "65|DIR/step-000001/" + one + ": cannot open: No such file or directory (ENOENT)");
}

TEST_F(Damaged, TwoFilesThatAreSwapped) {
  const std::vector<TensorShape> model = {{"a", {8}}};
  const std::vector<Entry> half = {{{"a", "master"}, {0, 4}, DType::f32}},
                           rest = {{{"a", "master"}, {4, 8}, DType::f32}};
  const Path path = save(*ops_, dir_.path(), manifest_of(1, 2, model), {half, rest});
  std::filesystem::rename(path / "rank-0000.safetensors", path / "x");
  std::filesystem::rename(path / "rank-0001.safetensors", path / "rank-0000.safetensors");
  std::filesystem::rename(path / "x", path / "rank-0001.safetensors");
  EXPECT_EQ(refusal(path),
            "65|DIR/step-000001/rank-0000.safetensors: the header is damaged, or the file is another "
            "checkpoint's or rank's");
}

// The manifest holds valid sums, but of another step's file, as a save that mixes up two steps would leave
// them.
TEST_F(Damaged, AFileOfAnotherStepWithValidSums) {
  const Entries entries = cut(1, kSmallModel);
  Manifest manifest = manifest_of(2, 1, kSmallModel);
  EXPECT_EQ(refusal_of(entries, manifest),
            "65|DIR/x/rank-0000.safetensors: belongs to step 1 of rank 0, not to step 2 of rank 0");
}

/// A byte of a file; a test changes it and looks at the reader's error.
struct Place {
  std::string file;
  std::int64_t byte;
};

class Flips : public Damaged {
 protected:
  void SetUp() override {
    path_ = save(*ops_, dir_.path(), 1, 4);
    for (const std::string& name : ops_->list(path_)) {
      if (name == kManifestName) continue;
      readers_.emplace(name, path_ / name);
    }
  }
  /// The entry that holds byte `byte` of its file; null if the byte belongs to the header.
  const SafeTensor* tensor_at(const Place& place) const {
    if (place.file == kManifestName) return nullptr;
    const SafetensorsReader& reader = readers_.at(place.file);
    const std::int64_t header =
        static_cast<std::int64_t>(std::filesystem::file_size(reader.path())) - reader.tensors().back().end;
    for (const SafeTensor& tensor : reader.tensors()) {
      if (place.byte >= header + tensor.begin && place.byte < header + tensor.end) return &tensor;
    }
    return nullptr;
  }
  Place random_place(std::uint64_t turn) const {
    const auto pick = [&](std::uint64_t what, std::int64_t n) {
      return static_cast<std::int64_t>(uniform(turn, what) * static_cast<double>(n));
    };
    const std::string file = pick(0, 5) == 0 ? kManifestName : file_name(pick(1, 4));
    const auto size = static_cast<std::int64_t>(std::filesystem::file_size(path_ / file));
    return {file, pick(2, pick(3, 2) == 0 ? size : std::min<std::int64_t>(size, 2000))};
  }

  Path path_;
  std::map<std::string, SafetensorsReader> readers_;
};

TEST_F(Flips, FiveHundredAreRefusedByFileAndTensor) {
  int in_tensors = 0;
  for (std::uint64_t turn = 0; turn < 500; ++turn) {
    const Place place = random_place(turn);
    const std::byte before = byte_of(path_ / place.file, place.byte);
    const std::byte flipped = before ^ static_cast<std::byte>(1U << (turn % 8));
    const auto file = ops_->open_write(path_ / place.file);
    file->write_at({&flipped, 1}, Bytes(place.byte));
    const std::string said = refusal(path_);
    EXPECT_EQ(said.rfind("65|DIR/step-000001/" + place.file + ": ", 0), 0U)
        << place.file << " byte " << place.byte << ": " << said;
    if (const SafeTensor* tensor = tensor_at(place)) {
      ++in_tensors;
      const std::string key = tensor->name.substr(0, tensor->name.rfind('['));
      EXPECT_NE(said.find("tensor " + key + " is damaged: the "), std::string::npos) << said;
    }
    file->write_at({&before, 1}, Bytes(place.byte));
  }
  EXPECT_GT(in_tensors, 100);
  EXPECT_LT(in_tensors, 400);
  EXPECT_EQ(refusal(path_), "no InputError");
}

TEST_F(Flips, CutOffAndLongerFilesAreRefusedByFile) {
  for (const std::string& name : ops_->list(path_)) {
    const std::string content = read_file(*ops_, path_ / name);
    const std::size_t size = content.size();
    for (const std::size_t length : {std::size_t{0}, std::size_t{1}, std::size_t{8}, size / 2, size - 1}) {
      ops_->create(path_ / name)->append(as_bytes(content.substr(0, length)));
      EXPECT_EQ(refusal(path_).rfind("65|DIR/step-000001/" + name + ": ", 0), 0U) << name << " " << length;
    }
    ops_->create(path_ / name)->append(as_bytes(content + " "));
    EXPECT_EQ(refusal(path_).rfind("65|DIR/step-000001/" + name + ": ", 0), 0U) << name << " longer";
    ops_->create(path_ / name)->append(as_bytes(content));
  }
  EXPECT_EQ(refusal(path_), "no InputError");
}

TEST_F(Flips, WhatIsNotReadIsNotChecked) {
  const Path file = path_ / "rank-0003.safetensors";
  const SafetensorsReader& reader = readers_.at("rank-0003.safetensors");
  const SafeTensor& big = reader.at("h.0.mlp.c_fc.weight@momentum[354375:630000]");
  const std::int64_t header = reader.bytes(big).data() - reader.bytes(reader.tensors()[0]).data() +
                              static_cast<std::int64_t>(std::filesystem::file_size(file)) -
                              reader.tensors().back().end;
  const std::byte wrong = byte_of(file, header + 5) ^ std::byte{4};
  ops_->open_write(file)->write_at({&wrong, 1}, Bytes(header + 5));
  Reader checkpoint(*ops_, path_);
  const Key key{"h.0.mlp.c_fc.weight", "momentum"};
  const std::int64_t second = 354375 + kBlock / 4;  // first element of the entry's second block
  EXPECT_EQ(read(checkpoint, key, {second, 630000}), values_of(key, {second, 630000}));
  EXPECT_EQ(read(checkpoint, key, {0, 354375}), values_of(key, {0, 354375}));
  const std::string said = input_error([&] { (void)read(checkpoint, key, {second - 1, second}); });
  EXPECT_NE(said.find("tensor h.0.mlp.c_fc.weight@momentum is damaged: the 1048576 bytes at byte " +
                      std::to_string(header)),
            std::string::npos)
      << said;
}

TEST_F(Flips, EveryBlockOfARangeIsChecked) {
  const Path file = path_ / "rank-0003.safetensors";  // ends with the variance's big tensor and ln_f.bias
  const Bytes in_last_block = ops_->size(file) - Bytes(8);
  const std::byte wrong = byte_of(file, in_last_block.value()) ^ std::byte{1};
  ops_->open_write(file)->write_at({&wrong, 1}, in_last_block);
  Reader checkpoint(*ops_, path_);
  const Key key{"h.0.mlp.c_fc.weight", "variance"};
  EXPECT_EQ(read(checkpoint, key, {354375, 400000}), values_of(key, {354375, 400000}));
  const std::string said = input_error([&] { (void)read(checkpoint, key, {354375, 630000}); });
  EXPECT_NE(said.find("tensor h.0.mlp.c_fc.weight@variance is damaged: the 53924 bytes at"),
            std::string::npos)
      << said;
}

TEST_F(Damaged, TheNewestWholeOneIsFound) {
  EXPECT_FALSE(newest_whole(*ops_, dir_ / "absent").found);
  for (std::int64_t step : {1, 20, 300, 4000}) save(*ops_, dir_.path(), step, 2, kSmallModel);
  save(*ops_, dir_.path(), 1234567, 2, kSmallModel);
  ops_->make_dir(dir_ / "step-9");
  ops_->make_dir(dir_ / ".step-000999.tmp-0");
  ops_->create(dir_ / "step-009999");
  std::vector<std::int64_t> steps;
  for (const Generation& generation : generations(*ops_, dir_.path())) steps.push_back(generation.step);
  EXPECT_EQ(steps, (std::vector<std::int64_t>{1, 20, 300, 4000, 1234567}));
  EXPECT_EQ(newest_whole(*ops_, dir_.path()).found->step, 1234567);

  std::filesystem::remove(dir_ / "step-1234567/manifest.json");
  const Path file = dir_ / "step-004000/rank-0001.safetensors";
  const auto last = static_cast<std::int64_t>(std::filesystem::file_size(file)) - 1;
  const std::byte wrong = byte_of(file, last) ^ std::byte{1};
  ops_->open_write(file)->write_at({&wrong, 1}, Bytes(last));
  const Newest newest = newest_whole(*ops_, dir_.path());
  EXPECT_EQ(newest.found->step, 300);
  EXPECT_EQ(newest.found->path, dir_ / "step-000300");
  ASSERT_EQ(newest.passed_over.size(), 2U);
  EXPECT_EQ(newest.passed_over[0].path, dir_ / "step-1234567");
  EXPECT_NE(newest.passed_over[0].why.find("is not a checkpoint: it holds no manifest.json"),
            std::string::npos);
  EXPECT_NE(newest.passed_over[1].why.find("rank-0001.safetensors: tensor ln_f.bias@variance is damaged"),
            std::string::npos)
      << newest.passed_over[1].why;
}

}  // namespace
}  // namespace sc::checkpoint
