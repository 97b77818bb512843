// Named tensors in one file in Hugging Face's safetensors format: 8 bytes little-endian header length N, N
// bytes of JSON, then the tensors' bytes without gaps. Little-endian machines only. No torch: tensors are
// spans of bytes. Source: the format's description in the README of github.com/huggingface/safetensors.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/types.h"
#include "common/storage/file_ops.h"
#include "common/storage/mapped_file.h"

namespace sc {

/// The bytes of the longest header that is read: GPT-2's has 15 kB, one of 30,000 tensors 3 MB. (The Python
/// package takes 100 MB.)
inline constexpr std::int64_t kMaxSafetensorsHeader = 16'000'000;

/// One tensor in the header of a file.
struct SafeTensor {
  std::string name;
  std::string stored_dtype;         // as in the file: "F32", "BF16", "I8", ...
  std::optional<DType> dtype;       // empty for types that this program can list but not compute with
  std::vector<std::int64_t> shape;  // {} is a scalar
  std::int64_t begin = 0, end = 0;  // bytes from the end of the header
  [[nodiscard]] Elements numel() const;
};

/// Reads a file through a mapping: opening reads the header; a tensor's bytes are read when touched.
class SafetensorsReader {
 public:
  /// Checks the whole header: afterwards everything that the file says about itself is true.
  ///   Errors  InputError (exit 65): the path, the byte if there is one, and what is wrong.
  explicit SafetensorsReader(const Path& path);

  /// All tensors, in the order of their bytes in the file.
  [[nodiscard]] const std::vector<SafeTensor>& tensors() const { return tensors_; }
  /// The tensor of a name; null if there is none.
  [[nodiscard]] const SafeTensor* find(std::string_view name) const;
  /// The tensor of a name.
  ///   Errors  InputError (exit 65) naming the nearest tensor.
  [[nodiscard]] const SafeTensor& at(std::string_view name) const;
  /// A tensor's elements, row-major; perhaps not aligned, so copy by memcpy. They live as long as the reader.
  [[nodiscard]] std::span<const std::byte> bytes(const SafeTensor& tensor) const;
  /// The strings under the header's "__metadata__".
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }
  [[nodiscard]] const Path& path() const { return file_.path(); }

 private:
  MappedFile file_;
  std::int64_t data_begin_ = 0;  // byte of the file at which the tensors start
  std::vector<SafeTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

struct SafeTensorSpec {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
};

/// Writes a file piece by piece: the header first, then every tensor's bytes in the announced order, so that
/// the model is never whole in memory. For a file that is complete or absent:
///   atomic_write_file(ops, path, [&](File& file) {
///     SafetensorsWriter out(file, specs);
///     ...;
///     out.finish();
///   });
///   Errors  those of File; std::logic_error if the calls contradict the announcement.
class SafetensorsWriter {
 public:
  /// Appends the header to `file`, which must be empty and outlive the writer. Tensors keep the order of
  /// `specs`; announce wider types first for readers that want aligned data.
  SafetensorsWriter(File& file, std::vector<SafeTensorSpec> specs,
                    const std::map<std::string, std::string>& metadata = {});
  /// Writes the next bytes of tensor `name`, row-major; a tensor may come in any number of pieces.
  void write(std::string_view name, std::span<const std::byte> piece);
  /// Ends the file; all tensors must have been written. Does not sync.
  void finish();

 private:
  void skip_complete();

  File& file_;
  std::vector<SafeTensorSpec> specs_;
  std::size_t current_ = 0;         // the tensor being written
  std::int64_t current_bytes_ = 0;  // bytes of it written so far
  std::int64_t unsynced_ = 0;
};

}  // namespace sc
