// One rank's file, read and checked block by block. Internal to checkpoints; no torch.
//
// The file is not mapped: then a file that somebody truncates meanwhile is an error like any other damage,
// and a run takes an older checkpoint.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "common/storage/checkpoint/file_writer.h"

namespace sc::checkpoint {

class RankFile {
 public:
  /// Checks size and header; afterwards the entries are those that the writer wrote.
  ///   Errors  InputError (exit 65) naming the file.
  RankFile(FileOps& ops, const Path& path, FileId id, FileSums sums);

  [[nodiscard]] const Path& path() const { return file_->path(); }
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }
  [[nodiscard]] std::int64_t blocks() const { return static_cast<std::int64_t>(sums_.block_sums.size()); }

  /// Reads elements `part` of the tensor, within entry number `entry`, from blocks whose checksums match.
  ///   Errors  InputError (exit 65) naming the file, the block's byte and the tensor.
  void read(std::size_t entry, Range part, std::span<std::byte> out) const;
  /// Checks blocks number `first`, `first` + `stride`, ...
  void verify(std::int64_t first, std::int64_t stride) const;

 private:
  /// Where an entry's bytes and blocks begin.
  struct Place {
    std::int64_t byte, bytes, block;
  };
  void read_header(FileId id);
  [[nodiscard]] std::string checked_header() const;
  void fill(std::span<std::byte> bytes, std::int64_t begin) const;
  [[nodiscard]] std::int64_t block_bytes(std::size_t entry, std::int64_t block) const;
  void fill_checked(std::span<std::byte> bytes, std::size_t entry, std::int64_t block) const;

  std::unique_ptr<File> file_;
  FileSums sums_;
  std::vector<Entry> entries_;
  std::vector<Place> places_;
};

}  // namespace sc::checkpoint
