// One rank's file, read through a mapping and checked block by block. Internal to checkpoints; no torch.
#pragma once

#include <span>
#include <vector>

#include "common/storage/checkpoint/file_writer.h"
#include "common/storage/mapped_file.h"

namespace sc::checkpoint {

class RankFile {
 public:
  /// Checks size and header; after that its entries are what the writer wrote.
  ///   Errors  InputError (exit 65) naming the file.
  RankFile(const Path& path, FileId id, FileSums sums);

  [[nodiscard]] const Path& path() const { return file_.path(); }
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }
  [[nodiscard]] std::int64_t blocks() const { return static_cast<std::int64_t>(sums_.block_sums.size()); }

  /// Elements `part` of the tensor, which lie within entry number `entry`. Blocks that nobody has read yet are
  /// checked first.
  ///   Errors  InputError (exit 65) naming the file, the block's byte and the tensor.
  void read(std::size_t entry, Range part, std::span<std::byte> out);
  /// Checks blocks number `first`, `first` + `stride`, ...
  void verify(std::int64_t first, std::int64_t stride);

 private:
  /// Where an entry's bytes and blocks begin.
  struct Place {
    std::int64_t byte, bytes, block;
  };
  void check_header() const;
  void read_header(FileId id);
  void check_block(std::size_t entry, std::int64_t block);

  MappedFile file_;
  FileSums sums_;
  std::vector<Entry> entries_;
  std::vector<Place> places_;
  std::vector<bool> checked_;  // blocks
};

}  // namespace sc::checkpoint
