// checkpoint export: writes weights for transformers, one tensor in memory at a time.
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <limits>

#include "common/base/finite.h"
#include "common/base/text.h"
#include "common/config/workload_table.h"
#include "common/model/hf_names.h"
#include "common/storage/atomic_dir.h"
#include "common/storage/checkpoint/command/command.h"
#include "common/storage/checkpoint/command/numbers.h"
#include "common/storage/safetensors.h"

namespace sc::checkpoint {
namespace {

constexpr std::int64_t kWrittenAtOnce = std::int64_t{1} << 18;  // elements written at a time
constexpr std::int64_t kRows = 16;  // rows of a transposed matrix: a cache line of its columns

GptConfig model_of(const Reader& reader) {
  const auto& workload = reader.manifest().workload;
  const std::string where = (reader.path() / kManifestName).string();
  const GptConfig model = workload_of_texts(workload, where).model;
  std::int64_t rows = std::numeric_limits<std::int64_t>::max();
  for (const TensorShape& tensor : reader.manifest().tensors) {
    if (tensor.name == "wte.weight" && tensor.shape.size() == 2) rows = tensor.shape[0];
  }
  if (workload.contains("model.vocab") && model.vocab <= rows) return model;
  throw InputError(ExitCode::data, where,
                   "\"workload\" does not say model.vocab, the rows of wte.weight without padding",
                   "export a checkpoint of this program's lessons");
}

class Exporter {
 public:
  Exporter(Reader& reader, DType dtype) : reader_(reader), dtype_(dtype), model_(model_of(reader)) {}
  void write(File& file) {
    std::vector<SafeTensorSpec> specs;
    for (const TensorShape& tensor : reader_.manifest().tensors) {
      specs.push_back({hf_name(tensor.name), dtype_, hf_shape(tensor.name, tensor.shape, model_.vocab)});
    }
    writer_.emplace(file, specs, hf_metadata(model_));
    for (const TensorShape& tensor : reader_.manifest().tensors) {
      const Key key{tensor.name, reader_.weights()};
      if (hf_transposed(tensor.name, tensor.shape)) {
        write_transposed(key, tensor.shape);
      } else {
        write_plain(key, TensorShape{"", hf_shape(tensor.name, tensor.shape, model_.vocab)}.numel());
      }
    }
    writer_->finish();
  }

  [[nodiscard]] const GptConfig& model() const { return model_; }

 private:
  using Shape = std::vector<std::int64_t>;
  void write_plain(const Key& key, std::int64_t numel) {
    const DType dtype = reader_.dtype(key);
    std::vector<std::byte> from;
    resize(out_, kWrittenAtOnce, dtype_);
    for (std::int64_t begin = 0; begin < numel; begin += kWrittenAtOnce) {
      const Range range{begin, std::min(begin + kWrittenAtOnce, numel)};
      resize(from, range.size(), dtype);
      reader_.read(key, range, from);
      require_finite(key, from, dtype);
      for (std::int64_t i = 0; i < range.size(); ++i)
        convert(&from[static_cast<std::size_t>(i * size_of(dtype))], dtype, i);
      flush(key, range.size());
    }
  }

  void write_transposed(const Key& key, const Shape& shape) {
    const DType dtype = reader_.dtype(key);
    const std::int64_t rows = shape[0], columns = shape[1];
    std::vector<std::byte> from;
    resize(from, rows * columns, dtype);
    reader_.read(key, {0, rows * columns}, from);
    require_finite(key, from, dtype);
    resize(out_, kRows * rows, dtype_);
    for (std::int64_t begin = 0; begin < columns; begin += kRows) {
      const std::int64_t end = std::min(begin + kRows, columns);
      for (std::int64_t row = 0; row < rows; ++row) {
        const std::byte* at = &from[static_cast<std::size_t>((row * columns + begin) * size_of(dtype))];
        for (std::int64_t column = 0; column < end - begin; ++column)
          convert(at + column * size_of(dtype), dtype, column * rows + row);
      }
      flush(key, (end - begin) * rows);
    }
  }

  void convert(const std::byte* from, DType dtype, std::int64_t to) {
    put_number(&out_[static_cast<std::size_t>(to * size_of(dtype_))], dtype_,
               static_cast<float>(number_at(from, dtype)));
  }
  void require_finite(const Key& key, std::span<const std::byte> from, DType dtype) const {
    if (!first_nonfinite(from, dtype)) return;
    throw InputError(ExitCode::claim, reader_.path().string(),
                     fmt::format("{} holds a number that is not finite (NaN or infinite)", text_of(key)),
                     "an older checkpoint, of before the training went wrong; nothing was written");
  }

  void flush(const Key& key, std::int64_t numbers) {
    const auto bytes = std::span(out_).first(static_cast<std::size_t>(numbers * size_of(dtype_)));
    if (first_nonfinite(bytes, dtype_))
      throw InputError(ExitCode::claim, hf_name(key.tensor),
                       fmt::format("holds a number that is too large for {}", name_of(dtype_)),
                       "--dtype f32 or bf16");
    writer_->write(hf_name(key.tensor), bytes);
  }
  void resize(std::vector<std::byte>& bytes, std::int64_t numbers, DType dtype) {
    bytes.resize(static_cast<std::size_t>(numbers * size_of(dtype)));
  }

  Reader& reader_;
  DType dtype_;
  GptConfig model_;
  std::optional<SafetensorsWriter> writer_;
  std::vector<std::byte> out_;
};

void refuse_existing(FileOps& ops, const Path& out, bool replace) {
  const PathKind kind = ops.kind(out, FileIntent::write);
  if (kind == PathKind::absent || (kind == PathKind::file && replace)) return;
  if (kind == PathKind::other) throw not_regular(FileIntent::write, out);
  throw InputError(ExitCode::cannot_write, out.string(),
                   kind == PathKind::directory ? "is a directory" : "is there already",
                   kind == PathKind::directory ? "give the name of a file" : "--replace, or another name");
}

}  // namespace

int export_weights(FileOps& ops, const Options& options, std::ostream& log) {
  const Path& out = options.paths[1];
  refuse_existing(ops, out, options.replace);
  const Path path = one_checkpoint(ops, options.paths[0], log);
  Reader reader(ops, path);
  Exporter exporter(reader, options.dtype);
  if (is_hf_folder(out)) check_hf_config(ops, out, {}, exporter.model());
  atomic_write_file(ops, out, [&](File& file) { exporter.write(file); });
  write_hf_config(ops, out, exporter.model());
  log << fmt::format("wrote {}: {} tensors of {} in {}, from {} of {}\n", out.string(),
                     reader.manifest().tensors.size(), human_bytes(ops.size(out)), name_of(options.dtype),
                     reader.weights(), path.string());
  return 0;
}

}  // namespace sc::checkpoint
