#include "common/storage/safetensors.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

#include "common/base/text.h"
#include "common/storage/git_lfs.h"
#include "common/storage/safetensors_header.h"

namespace sc {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

namespace {

constexpr std::int64_t kLengthBytes = 8;
constexpr const char* kDamagedFix = "the file is cut off or is not safetensors: fetch or write it again";

/// The length of the header, checked against the file's size.
std::int64_t header_length(const MappedFile& file) {
  const auto refuse = [&file](const std::string& what) {
    throw InputError(ExitCode::data, file.path().string(), what, kDamagedFix);
  };
  const std::int64_t size = file.size().value();
  if (size < kLengthBytes)
    refuse(fmt::format("{} bytes; a safetensors file starts with an 8-byte header length", size));
  std::uint64_t length = 0;
  std::memcpy(&length, file.bytes().data(), sizeof(length));
  if (length > static_cast<std::uint64_t>(kMaxSafetensorsHeader))
    refuse(fmt::format("header length {} at byte 0 is above the limit of {}", length, kMaxSafetensorsHeader));
  if (static_cast<std::int64_t>(length) > size - kLengthBytes)
    refuse(fmt::format("header of {} bytes at byte 8 ends past the file's {} bytes", length, size));
  return static_cast<std::int64_t>(length);
}

}  // namespace

Elements SafeTensor::numel() const { return Elements(shape_numel(shape)); }

SafetensorsReader::SafetensorsReader(const Path& path) : file_(path) {
  require_no_lfs_pointer(file_.text(), path);
  const std::int64_t length = header_length(file_);
  data_begin_ = kLengthBytes + length;
  const std::string_view json =
      file_.text().substr(static_cast<std::size_t>(kLengthBytes), static_cast<std::size_t>(length));
  SafetensorsHeader header = parse_safetensors_header(json, file_.size().value() - data_begin_, path);
  tensors_ = std::move(header.tensors);
  metadata_ = std::move(header.metadata);
}

const SafeTensor* SafetensorsReader::find(std::string_view name) const {
  const auto at = std::ranges::find(tensors_, name, &SafeTensor::name);
  return at == tensors_.end() ? nullptr : &*at;
}

const SafeTensor& SafetensorsReader::at(std::string_view name) const {
  if (const SafeTensor* tensor = find(name)) return *tensor;
  std::vector<std::string> names;
  for (const SafeTensor& tensor : tensors_) names.push_back(tensor.name);
  const std::string near = nearest(name, names);
  throw InputError(ExitCode::data, path().string(),
                   fmt::format("no tensor \"{}\" among its {}{}", name, tensors_.size(),
                               near.empty() ? "" : fmt::format("; the nearest is \"{}\"", near)),
                   "give weights of the model that the workload describes");
}

std::span<const std::byte> SafetensorsReader::bytes(const SafeTensor& tensor) const {
  return file_.bytes().subspan(static_cast<std::size_t>(data_begin_ + tensor.begin),
                               static_cast<std::size_t>(tensor.end - tensor.begin));
}

namespace {

std::int64_t spec_bytes(const SafeTensorSpec& spec) { return shape_numel(spec.shape) * size_of(spec.dtype); }

}  // namespace

SafetensorsWriter::SafetensorsWriter(File& file, std::vector<SafeTensorSpec> specs,
                                     const std::map<std::string, std::string>& metadata)
    : file_(file), specs_(std::move(specs)) {
  if (file_.size() != Bytes(0)) throw std::logic_error("SafetensorsWriter: the file is not empty");
  file_.append(as_bytes(safetensors_head(specs_, metadata)));
  skip_complete();
}

void SafetensorsWriter::write(std::string_view name, std::span<const std::byte> piece) {
  if (current_ == specs_.size() || specs_[current_].name != name) {
    // Tensors without elements may be written or left out.
    if (piece.empty()) return;
    throw std::logic_error(fmt::format("SafetensorsWriter: \"{}\" came in place of \"{}\"", name,
                                       current_ == specs_.size() ? "the end" : specs_[current_].name));
  }
  const std::int64_t total = spec_bytes(specs_[current_]);
  current_bytes_ += static_cast<std::int64_t>(piece.size());
  if (current_bytes_ > total) {
    throw std::logic_error(
        fmt::format("SafetensorsWriter: \"{}\" has {} bytes, {} came", name, total, current_bytes_));
  }
  while (!piece.empty()) {
    const auto next =
        static_cast<std::size_t>(std::min<std::int64_t>(std::ssize(piece), kSyncEvery - unsynced_));
    file_.append(piece.first(next));
    unsynced_ += static_cast<std::int64_t>(next);
    if (unsynced_ == kSyncEvery) file_.sync(), unsynced_ = 0;
    piece = piece.subspan(next);
  }
  skip_complete();
}

void SafetensorsWriter::skip_complete() {
  while (current_ < specs_.size() && current_bytes_ == spec_bytes(specs_[current_])) {
    ++current_;
    current_bytes_ = 0;
  }
}

void SafetensorsWriter::finish() {
  if (current_ == specs_.size()) return;
  throw std::logic_error(fmt::format("SafetensorsWriter: finished with {} of {} bytes of \"{}\"",
                                     current_bytes_, spec_bytes(specs_[current_]), specs_[current_].name));
}

}  // namespace sc
