// One rank's part of a checkpoint, written as a stream. No torch.
//
// The file is a safetensors file of one-dimensional tensors, named as in entry.h, with format, step and rank
// in `__metadata__`.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/storage/checkpoint/entry.h"
#include "common/storage/checkpoint/sums.h"
#include "common/storage/file_ops.h"

namespace sc::checkpoint {

inline constexpr int kFormat = 1;

struct FileId {
  std::int64_t step = 0, rank = 0;
};

/// The name of a rank's file: "rank-0003.safetensors".
std::string file_name(std::int64_t rank);

/// What the manifest stores to verify a file: every byte is in the header or in one block.
struct FileSums {
  std::string name;
  std::int64_t bytes = 0;
  std::int64_t header_bytes = 0;  // everything before the entries' bytes
  std::uint64_t header_sum = 0;
  std::vector<std::uint64_t> block_sums;  // entry by entry, in the order of their bytes
  bool operator==(const FileSums&) const = default;
};

/// Turns a rank's sums into one line of JSON, sent to the rank that writes the manifest, and back.
///   Errors  InputError (exit 65) naming `where`.
std::string text_of(const FileSums& sums);
FileSums sums_of_text(std::string_view text, const std::string& where);

/// The disk space for a rank's file and its sums in the manifest, known before anything is written. A
/// generation needs the sum over ranks, and less than 1 MB more.
Bytes bytes_needed(FileId id, std::span<const Entry> entries);

/// Throws InputError (exit 73) if the file system that holds `dir` (whose parents may be missing) has less
/// space than `needed`, or too few free inodes for that many new files and directories.
void require_free_space(FileOps& ops, const Path& dir, Bytes needed, std::int64_t files = 0);

/// Writes DIR/rank-NNNN.safetensors. DIR exists already; its owner gives it its final name later
/// (AtomicDir::path()).
///   FileWriter out(ops, dir, {.step = 400, .rank = 3}, entries);
///   for (size_t i = 0; i < entries.size(); ++i)
///     ...; out.write(i, piece);                        // any number of pieces, of any size
///   const FileSums sums = out.finish();                // the file is on the device
///   Memory  one block.
///   Disk    flushed every 256 MB, so that finish() does not wait for all of the file.
///   Errors  those of File; std::logic_error if the calls contradict the announcement.
class FileWriter {
 public:
  FileWriter(FileOps& ops, const Path& dir, FileId id, std::vector<Entry> entries);

  /// Writes the next bytes of entry number `entry` in its dtype. Entries come in the announced order.
  void write(std::size_t entry, std::span<const std::byte> piece);
  /// Ends the file; all entries must have been written. Must be called once.
  FileSums finish();

 private:
  [[nodiscard]] std::int64_t bytes_of_current() const;
  void put(std::span<const std::byte> bytes);
  void put_block(std::span<const std::byte> block);

  std::vector<Entry> entries_;
  std::unique_ptr<File> file_;
  FileSums sums_;
  std::vector<std::byte> block_;  // the part of an incomplete block that was written so far
  std::size_t current_ = 0;       // the entry being written
  std::int64_t left_ = 0;         // bytes of it that are still missing
  std::int64_t unsynced_ = 0;
};

}  // namespace sc::checkpoint
