#include "common/storage/checkpoint/rank_file.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstring>

#include "common/input/printable.h"
#include "common/storage/safetensors_header.h"

namespace sc::checkpoint {
namespace {

constexpr std::int64_t kLengthBytes = 8;

[[noreturn]] void refuse(const Path& path, const std::string& what) {
  throw InputError(ExitCode::data, path.string(), what, "use another checkpoint: this file is not whole");
}

}  // namespace

RankFile::RankFile(FileOps& ops, const Path& path, FileId id, FileSums sums)
    : file_(ops.open_read(path)), sums_(std::move(sums)) {
  if (file_->size().value() != sums_.bytes) {
    refuse(path, fmt::format("has {} bytes, the manifest says {}", file_->size().value(), sums_.bytes));
  }
  read_header(id);
}

void RankFile::fill(std::span<std::byte> bytes, std::int64_t begin) const {
  if (file_->read_at(bytes, Bytes(begin)).value() == static_cast<std::int64_t>(bytes.size())) return;
  refuse(path(), "was cut off while it was read");
}

/// The header's JSON. Sizes come from the file and may be anything, so they are compared without adding.
std::string RankFile::checked_header() const {
  const std::int64_t size = sums_.header_bytes;
  std::int64_t length = -1;
  if (size >= kLengthBytes && size <= sums_.bytes && size - kLengthBytes <= kMaxSafetensorsHeader) {
    std::string header(static_cast<std::size_t>(size), '\0');
    fill(std::as_writable_bytes(std::span(header)), 0);
    std::memcpy(&length, header.data(), sizeof(length));
    if (length == size - kLengthBytes && sum_of(as_bytes(header)) == sums_.header_sum) {
      return header.substr(static_cast<std::size_t>(kLengthBytes));
    }
  }
  refuse(path(), "the header is damaged, or the file is another checkpoint's or rank's");
}

void RankFile::read_header(FileId id) {
  SafetensorsHeader header =
      parse_safetensors_header(checked_header(), sums_.bytes - sums_.header_bytes, path());
  if (header.metadata["step"] != std::to_string(id.step) ||
      header.metadata["rank"] != std::to_string(id.rank)) {
    refuse(path(),
           fmt::format("belongs to step {} of rank {}, not to step {} of rank {}",
                       shown(header.metadata["step"]), shown(header.metadata["rank"]), id.step, id.rank));
  }
  std::int64_t block = 0;
  for (const SafeTensor& tensor : header.tensors) {
    const auto entry = entry_of_name(tensor.name, tensor.dtype.value_or(DType::u8));
    if (!entry || !tensor.dtype || tensor.numel().value() != entry->range.size()) {
      refuse(path(), fmt::format("tensor \"{}\" ({}, {} elements) is not named as a checkpoint's",
                                 shown(tensor.name), tensor.stored_dtype, tensor.numel().value()));
    }
    entries_.push_back(*entry);
    places_.push_back({sums_.header_bytes + tensor.begin, tensor.end - tensor.begin, block});
    const std::int64_t bytes = tensor.end - tensor.begin;
    block += bytes / kBlock + (bytes % kBlock == 0 ? 0 : 1);
  }
  if (block == blocks()) return;
  refuse(path(), fmt::format("has {} blocks, the manifest has sums of {}", block, blocks()));
}

std::int64_t RankFile::block_bytes(std::size_t entry, std::int64_t block) const {
  return std::min(kBlock, places_[entry].bytes - block * kBlock);
}

/// Reads one block of an entry into `bytes`, which has its size, and compares its checksum.
void RankFile::fill_checked(std::span<std::byte> bytes, std::size_t entry, std::int64_t block) const {
  const Place& place = places_[entry];
  fill(bytes, place.byte + block * kBlock);
  if (sum_of(bytes) == sums_.block_sums[static_cast<std::size_t>(place.block + block)]) return;
  refuse(path(), fmt::format("tensor {} is damaged: the {} bytes at byte {} do not have their check sum",
                             shown(text_of(entries_[entry].key)), bytes.size(), place.byte + block * kBlock));
}

void RankFile::read(std::size_t entry, Range part, std::span<std::byte> out) const {
  const std::int64_t width = size_of(entries_[entry].dtype);
  const std::int64_t begin = (part.begin - entries_[entry].range.begin) * width;
  const std::int64_t end = begin + part.size() * width;
  std::vector<std::byte> edge;  // a block of which only a part is requested
  for (std::int64_t block = begin / kBlock; block * kBlock < end; ++block) {
    const std::int64_t size = block_bytes(entry, block), at = block * kBlock;
    const std::int64_t first = std::max(begin, at), last = std::min(end, at + size);
    const auto wanted =
        out.subspan(static_cast<std::size_t>(first - begin), static_cast<std::size_t>(last - first));
    if (last - first == size) {
      fill_checked(wanted, entry, block);
      continue;
    }
    edge.resize(static_cast<std::size_t>(size));
    fill_checked(edge, entry, block);
    std::memcpy(wanted.data(), edge.data() + (first - at), wanted.size());
  }
}

void RankFile::verify(std::int64_t first, std::int64_t stride) const {
  std::size_t entry = 0;
  std::vector<std::byte> bytes;
  for (std::int64_t block = first; block < blocks(); block += stride) {
    while (entry + 1 < places_.size() && places_[entry + 1].block <= block) ++entry;
    const std::int64_t of_entry = block - places_[entry].block;
    bytes.resize(static_cast<std::size_t>(block_bytes(entry, of_entry)));
    fill_checked(bytes, entry, of_entry);
  }
}

}  // namespace sc::checkpoint
