#include "common/storage/checkpoint/rank_file.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstring>

#include "common/storage/safetensors_header.h"

namespace sc::checkpoint {
namespace {

constexpr std::int64_t kLengthBytes = 8;

[[noreturn]] void refuse(const Path& path, const std::string& what) {
  throw InputError(ExitCode::data, path.string(), what, "use another checkpoint: this file is not whole");
}

}  // namespace

RankFile::RankFile(const Path& path, FileId id, FileSums sums) : file_(path), sums_(std::move(sums)) {
  if (file_.size().value() != sums_.bytes) {
    refuse(path, fmt::format("has {} bytes, the manifest says {}", file_.size().value(), sums_.bytes));
  }
  check_header();
  read_header(id);
  checked_.resize(sums_.block_sums.size());
}

void RankFile::check_header() const {
  const std::int64_t size = sums_.header_bytes;
  std::int64_t length = 0;
  if (size >= kLengthBytes && size <= sums_.bytes) {
    std::memcpy(&length, file_.bytes().data(), sizeof(length));
  }
  if (length + kLengthBytes == size &&
      sum_of(file_.bytes().first(static_cast<std::size_t>(size))) == sums_.header_sum) {
    return;
  }
  refuse(path(), "the header is damaged, or the file is another checkpoint's or rank's");
}

void RankFile::read_header(FileId id) {
  const std::string_view json = file_.text().substr(
      static_cast<std::size_t>(kLengthBytes), static_cast<std::size_t>(sums_.header_bytes - kLengthBytes));
  SafetensorsHeader header = parse_safetensors_header(json, sums_.bytes - sums_.header_bytes, path());
  if (header.metadata["step"] != std::to_string(id.step) ||
      header.metadata["rank"] != std::to_string(id.rank)) {
    refuse(path(), fmt::format("belongs to step {} of rank {}, not to step {} of rank {}",
                               header.metadata["step"], header.metadata["rank"], id.step, id.rank));
  }
  std::int64_t block = 0;
  for (const SafeTensor& tensor : header.tensors) {
    const auto entry = entry_of_name(tensor.name, tensor.dtype.value_or(DType::u8));
    if (!entry || !tensor.dtype || tensor.numel().value() != entry->range.size()) {
      refuse(path(), fmt::format("tensor \"{}\" ({}, {} elements) is not named as a checkpoint's",
                                 tensor.name, tensor.stored_dtype, tensor.numel().value()));
    }
    entries_.push_back(*entry);
    places_.push_back({sums_.header_bytes + tensor.begin, tensor.end - tensor.begin, block});
    block += ceil_div(tensor.end - tensor.begin, kBlock);
  }
  if (block == blocks()) return;
  refuse(path(), fmt::format("has {} blocks, the manifest has sums of {}", block, blocks()));
}

void RankFile::check_block(std::size_t entry, std::int64_t block) {
  const Place& place = places_[entry];
  const auto index = static_cast<std::size_t>(place.block + block);
  if (checked_[index]) return;
  const std::int64_t begin = block * kBlock, size = std::min(kBlock, place.bytes - begin);
  const auto bytes =
      file_.bytes().subspan(static_cast<std::size_t>(place.byte + begin), static_cast<std::size_t>(size));
  if (sum_of(bytes) != sums_.block_sums[index]) {
    refuse(path(), fmt::format("tensor {} is damaged: the {} bytes at byte {} do not have their check sum",
                               text_of(entries_[entry].key), size, place.byte + begin));
  }
  checked_[index] = true;
}

void RankFile::read(std::size_t entry, Range part, std::span<std::byte> out) {
  const std::int64_t width = size_of(entries_[entry].dtype);
  const std::int64_t begin = (part.begin - entries_[entry].range.begin) * width;
  const std::int64_t end = begin + part.size() * width;
  for (std::int64_t block = begin / kBlock; block * kBlock < end; ++block) check_block(entry, block);
  std::memcpy(out.data(), file_.bytes().data() + places_[entry].byte + begin,
              static_cast<std::size_t>(end - begin));
}

void RankFile::verify(std::int64_t first, std::int64_t stride) {
  std::size_t entry = 0;
  for (std::int64_t block = first; block < blocks(); block += stride) {
    while (entry + 1 < places_.size() && places_[entry + 1].block <= block) ++entry;
    check_block(entry, block - places_[entry].block);
  }
}

}  // namespace sc::checkpoint
