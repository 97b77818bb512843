// A file's bytes as memory. No torch.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "common/storage/cut_off.h"
#include "common/storage/file_ops.h"

namespace sc {

/// A whole file, mapped read-only: pages are read when they are touched, and shared between processes. The
/// bytes live as long as this object and its copies. If another process truncates the file, this process ends
/// with 65 and the file's name (cut_off.h); code that must survive that reads through File. Our own files are
/// replaced by rename, never rewritten in place.
///   Errors  InputError (exit 65) if it is absent, unreadable or not a regular file.
class MappedFile {
 public:
  MappedFile() = default;  // an empty file
  explicit MappedFile(const Path& path);

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  [[nodiscard]] std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }
  [[nodiscard]] Bytes size() const { return Bytes(static_cast<std::int64_t>(bytes_.size())); }
  [[nodiscard]] const Path& path() const { return path_; }

 private:
  Path path_;
  std::shared_ptr<Guarded> mapping_;  // null for an empty file
  std::span<const std::byte> bytes_;
};

}  // namespace sc
