#include "common/storage/checkpoint/file_writer.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <stdexcept>

#include "common/base/text.h"
#include "common/storage/checkpoint/fields.h"
#include "common/storage/safetensors_header.h"

namespace sc::checkpoint {
namespace {

std::int64_t bytes_of(const Entry& entry) { return entry.range.size() * size_of(entry.dtype); }

std::string header_of(FileId id, std::span<const Entry> entries) {
  std::vector<SafeTensorSpec> specs;
  for (const Entry& entry : entries) {
    const std::string name = name_of(entry);
    if (entry_of_name(name, entry.dtype) != entry) {
      throw std::logic_error(fmt::format("checkpoint: \"{}\" is not an entry", name));
    }
    specs.push_back({name, entry.dtype, {entry.range.size()}});
  }
  return safetensors_head(specs, {{"format", fmt::format("stagecraft {}", kFormat)},
                                  {"step", std::to_string(id.step)},
                                  {"rank", std::to_string(id.rank)}});
}

}  // namespace

std::string file_name(std::int64_t rank) { return fmt::format("rank-{:04}.safetensors", rank); }

std::string text_of(const FileSums& sums) { return json_of(sums).dump(); }

FileSums sums_of_text(std::string_view text, const std::string& where) {
  return of_manifest(text, where, file_sums_of);
}

Bytes bytes_needed(FileId id, std::span<const Entry> entries) {
  constexpr std::int64_t kDigitsOfASum = 16, kRestOfSums = 256;
  auto bytes = static_cast<std::int64_t>(header_of(id, entries).size()) + kRestOfSums;
  for (const Entry& entry : entries)
    bytes += bytes_of(entry) + kDigitsOfASum * ceil_div(bytes_of(entry), kBlock);
  return Bytes(bytes);
}

void require_free_space(FileOps& ops, const Path& dir, Bytes needed, std::int64_t files) {
  Path there = dir;
  while (ops.kind(there, FileIntent::write) == PathKind::absent && parent_of(there) != there)
    there = parent_of(there);
  const FreeSpace free = ops.free_space(there);
  if (free.bytes >= needed && free.files >= files) return;
  throw InputError(
      ExitCode::cannot_write, dir.string(),
      free.bytes < needed
          ? fmt::format("a checkpoint takes {}, {} are free", human_bytes(needed), human_bytes(free.bytes))
          : fmt::format("checkpoints take {} new files and folders, {} can be made (df -i)", files,
                        free.files),
      "make room there, keep fewer checkpoints, or write to another file system");
}

FileWriter::FileWriter(FileOps& ops, const Path& dir, FileId id, std::vector<Entry> entries)
    : entries_(std::move(entries)) {
  const std::string header = header_of(id, entries_);
  sums_.name = file_name(id.rank);
  sums_.header_bytes = static_cast<std::int64_t>(header.size());
  sums_.header_sum = sum_of(as_bytes(header));
  file_ = create_only(ops, dir / sums_.name);
  put(as_bytes(header));
  left_ = bytes_of_current();
}

std::int64_t FileWriter::bytes_of_current() const {
  return current_ < entries_.size() ? bytes_of(entries_[current_]) : 0;
}

void FileWriter::put(std::span<const std::byte> bytes) {
  file_->write_at(bytes, Bytes(sums_.bytes));
  sums_.bytes += static_cast<std::int64_t>(bytes.size());
  unsynced_ += static_cast<std::int64_t>(bytes.size());
  if (unsynced_ < kSyncEvery) return;
  file_->sync();
  unsynced_ = 0;
}

void FileWriter::put_block(std::span<const std::byte> block) {
  sums_.block_sums.push_back(sum_of(block));
  put(block);
}

void FileWriter::write(std::size_t entry, std::span<const std::byte> piece) {
  if (file_ == nullptr || entry != current_ || static_cast<std::int64_t>(piece.size()) > left_) {
    throw std::logic_error(fmt::format("checkpoint: {} bytes of entry {} came where {} of entry {} were left",
                                       piece.size(), entry, left_, current_));
  }
  while (!piece.empty()) {
    const std::size_t take = std::min(static_cast<std::size_t>(kBlock) - block_.size(), piece.size());
    left_ -= static_cast<std::int64_t>(take);
    const bool ends = block_.size() + take == kBlock || left_ == 0;
    if (ends && block_.empty()) {
      put_block(piece.first(take));  // whole blocks need no copy
    } else {
      block_.insert(block_.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(take));
      if (ends) put_block(block_);
      if (ends) block_.clear();
    }
    piece = piece.subspan(take);
  }
  if (left_ > 0 || current_ == entries_.size()) return;
  ++current_;
  left_ = bytes_of_current();
}

FileSums FileWriter::finish() {
  if (file_ == nullptr || current_ < entries_.size()) {
    throw std::logic_error(
        fmt::format("checkpoint: finished twice, or with {} of {} entries", current_, entries_.size()));
  }
  file_->sync();
  file_.reset();
  return sums_;
}

}  // namespace sc::checkpoint
