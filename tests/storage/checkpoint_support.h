// Checkpoints of a small model, written by any number of ranks, for tests.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "common/storage/checkpoint/generations.h"
#include "common/storage/checkpoint/reader.h"
#include "tests/storage/temp_dir.h"

namespace sc::checkpoint::test {

using sc::test::input_error;
using sc::test::InTempDir;
using sc::test::TempDir;
using sc::test::without_fix;

/// Tensors named and oriented as GPT-2's. 5 rows of wte are padding; the matrix of 700 x 900 takes several
/// blocks.
inline const std::vector<TensorShape> kModel = {{"wte.weight", {16, 6}},
                                                {"h.0.ln_1.weight", {6}},
                                                {"h.0.attn.c_attn.weight", {18, 6}},
                                                {"h.0.mlp.c_fc.weight", {700, 900}},
                                                {"ln_f.bias", {1}}};
inline const std::vector<TensorShape> kSmallModel = {
    {"wte.weight", {16, 6}}, {"h.0.attn.c_attn.weight", {18, 6}}, {"ln_f.bias", {1}}};
inline const std::vector<std::string> kPurposes = {"master", "momentum", "variance"};

/// The value of element i of a tensor, by a formula that checkpoint_python_test.py repeats.
inline float value_at(std::int64_t seed, std::int64_t i) {
  return static_cast<float>((i * 7919 + seed * 104729) % 65521) / 64 - 500;
}
inline std::int64_t seed_of(const Key& key) {
  std::int64_t seed = 0;
  for (const char c : text_of(key)) seed = seed * 31 % 65521 + c;
  return seed;
}

inline std::vector<float> values_of(const Key& key, Range range) {
  std::vector<float> values;
  const std::int64_t seed = seed_of(key);
  for (std::int64_t i = range.begin; i < range.end; ++i) values.push_back(value_at(seed, i));
  return values;
}

inline Manifest manifest_of(std::int64_t step, std::int64_t world,
                            const std::vector<TensorShape>& model = kModel) {
  return {.step = step,
          .updates = step - 1,
          .tokens_per_step = 1536,
          .rows = 12 * step + 5,
          .tokens = 1536 * step + 640,
          .scaler = {65536.5, 7, 2},
          .skips_in_a_row = 1,
          .lesson = "04_zero3",
          .world = world,
          .workload = {{"model.vocab", "11"}, {"optim.lr", "0.002"}},
          .workload_hash = "abc",
          .strategy = {{"persist_below", "100"}},
          .commit = "0123abc",
          .arithmetic = "CPU AVX2, threads 1",
          .data = {4030000, 0xfedcba9876543210U},
          .tensors = model,
          .extra = R"({"pending":[3,4]})",
          .files = {}};
}

using Entries = std::vector<std::vector<Entry>>;  // of each rank

/// Entries of every (tensor, purpose), cut unevenly among the ranks; of small tensors some ranks get none.
inline Entries cut(std::int64_t world, const std::vector<TensorShape>& model = kModel,
                   const std::vector<std::string>& purposes = kPurposes) {
  Entries entries(static_cast<std::size_t>(world));
  for (const std::string& purpose : purposes) {
    for (const TensorShape& tensor : model) {
      for (std::int64_t rank = 0; rank < world; ++rank) {
        const auto border = [&](std::int64_t r) {  // quadratic: later ranks get more
          return tensor.numel() * r * r / (world * world);
        };
        const Range range{border(rank), border(rank + 1)};
        if (range.size() == 0) continue;
        entries[static_cast<std::size_t>(rank)].push_back({{tensor.name, purpose}, range, DType::f32});
      }
    }
  }
  return entries;
}

/// An entry's values, in order: those elements of the whole tensor that the entry holds.
inline std::vector<float> values_of(const Entry& entry) {
  const Columns& c = entry.columns;
  const std::vector<float> whole = values_of(entry.key, {0, ceil_div(entry.range.end, c.size()) * c.of});
  std::vector<float> values;
  for (std::int64_t i = entry.range.begin; i < entry.range.end; ++i)
    values.push_back(whole[static_cast<std::size_t>(i / c.size() * c.of + c.begin + i % c.size())]);
  return values;
}

/// Writes all ranks' files, in pieces of odd sizes, and adds their sums to the manifest.
inline void write_files(FileOps& ops, const Path& dir, const Entries& entries, Manifest& manifest) {
  for (std::size_t rank = 0; rank < entries.size(); ++rank) {
    FileWriter out(ops, dir, {manifest.step, static_cast<std::int64_t>(rank)}, entries[rank]);
    for (std::size_t e = 0; e < entries[rank].size(); ++e) {
      const auto values = values_of(entries[rank][e]);
      auto bytes = std::as_bytes(std::span(values));
      for (std::size_t size = 5; !bytes.empty(); size = size * 3 + 1) {
        const std::size_t take = std::min(size, bytes.size());
        out.write(e, bytes.first(take));
        bytes = bytes.subspan(take);
      }
    }
    manifest.files.push_back(out.finish());
  }
}

/// Saves a whole checkpoint as DIR/step-NNNNNN and returns its path.
inline Path save(FileOps& ops, const Path& dir, Manifest manifest, const Entries& entries) {
  const Path target = dir / generation_name(manifest.step);
  AtomicDir out(ops, target, AtomicDir::Existing::replace);
  write_files(ops, out.path(), entries, manifest);
  commit_generation(ops, out, manifest);
  return target;
}

inline Path save(FileOps& ops, const Path& dir, std::int64_t step, std::int64_t world,
                 const std::vector<TensorShape>& model = kModel) {
  return save(ops, dir, manifest_of(step, world, model), cut(world, model));
}

inline std::vector<float> read(Reader& reader, const Key& key, Range range) {
  std::vector<float> values(static_cast<std::size_t>(range.size()));
  reader.read(key, range, std::as_writable_bytes(std::span(values)));
  return values;
}

}  // namespace sc::checkpoint::test
