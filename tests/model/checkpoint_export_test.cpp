// Tests `checkpoint export`, which uses no torch: it writes the bytes that the lessons' own export writes.
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <sstream>

#include "common/model/hf_weights.h"
#include "common/storage/atomic_dir.h"
#include "common/storage/checkpoint/command/command.h"
#include "common/storage/checkpoint/generations.h"
#include "tests/model/golden.h"
#include "tests/storage/temp_dir.h"

namespace sc {
namespace {

using checkpoint::Entry;
using test::golden_config;

std::vector<UnitTensors> golden_units(const ParamLayout& layout) {
  const HfWeights weights(test::kGolden / (layout.config().tied ? "tied.safetensors" : "untied.safetensors"),
                          layout.config());
  std::vector<UnitTensors> units;
  for (int u = 0; u < layout.num_units(); ++u) {
    units.push_back({at::empty({layout.unit(u).size(Segment::sharded)}),
                     at::empty({layout.unit(u).size(Segment::whole)})});
    weights.load_unit(layout, u, units.back());
  }
  return units;
}

/// Saves the parameters as one rank, tensor by tensor.
Path save(FileOps& ops, const Path& dir, const ParamLayout& layout, const std::vector<UnitTensors>& units) {
  checkpoint::Manifest manifest;
  const GptConfig& c = layout.config();
  manifest.workload = {{"model.vocab", std::to_string(c.vocab)},     {"model.heads", std::to_string(c.heads)},
                       {"model.layers", std::to_string(c.layers)},   {"model.width", std::to_string(c.width)},
                       {"model.context", std::to_string(c.context)}, {"model.tied", c.tied ? "on" : "off"}};
  std::vector<Entry> entries;
  std::vector<std::span<const std::byte>> values;
  for (int u = 0; u < layout.num_units(); ++u) {
    for (const ParamTensor& t : layout.unit(u).tensors) {
      manifest.tensors.push_back({t.name, t.shape});
      entries.push_back({{t.name, "parameters"}, {0, t.numel()}, DType::f32});
      const float* first = units[static_cast<std::size_t>(u)].segment(t.segment).const_data_ptr<float>();
      values.push_back(std::as_bytes(std::span(first + t.offset, static_cast<std::size_t>(t.numel()))));
    }
  }
  AtomicDir out(ops, dir / checkpoint::generation_name(0), AtomicDir::Existing::refuse);
  checkpoint::FileWriter file(ops, out.path(), {}, entries);
  for (std::size_t e = 0; e < entries.size(); ++e) file.write(e, values[e]);
  manifest.files = {file.finish()};
  commit_generation(ops, out, manifest);
  return dir / checkpoint::generation_name(0);
}

TEST(CheckpointExport, EqualsTheLessonsExport) {
  const auto ops = posix_file_ops(Syncing::skip);
  for (const bool tied : {true, false}) {
    const test::TempDir dir;
    const ParamLayout layout(golden_config(tied), WorldSize{2}, 100);
    const std::vector<UnitTensors> units = golden_units(layout);
    const Path saved = save(*ops, dir.path(), layout, units);
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      atomic_write_file(*ops, dir / "lesson", [&](File& file) {
        export_hf_weights(file, layout, dtype, [&](int u) { return units[static_cast<std::size_t>(u)]; });
      });
      std::ostringstream log;
      const checkpoint::Options options{
          .command = "export", .paths = {saved, dir / "command"}, .dtype = dtype, .replace = true};
      EXPECT_EQ(checkpoint::run(*ops, options, log), 0);
      EXPECT_TRUE(read_file(*ops, dir / "command") == read_file(*ops, dir / "lesson")) << name_of(dtype);
    }
  }
}

}  // namespace
}  // namespace sc
