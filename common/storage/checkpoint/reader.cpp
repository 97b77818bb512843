#include "common/storage/checkpoint/reader.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <stdexcept>
#include <tuple>

#include "common/input/printable.h"
#include "common/storage/bounded_file.h"
#include "common/storage/checkpoint/generations.h"

namespace sc::checkpoint {
namespace {

[[noreturn]] void refuse_at(const Path& path, const std::string& what) {
  throw InputError(ExitCode::data, path.string(), what, "use another checkpoint");
}

Manifest read_manifest(FileOps& ops, const Path& dir) {
  if (ops.kind(dir) != PathKind::directory) {
    throw InputError(ExitCode::data, dir.string(), "there is no such directory",
                     "check the path (it is relative to the working directory)");
  }
  if (!is_checkpoint(ops, dir)) {
    throw InputError(ExitCode::data, dir.string(),
                     fmt::format("is not a checkpoint: it holds no {}", kManifestName),
                     "give a directory step-NNNNNN");
  }
  const Path file = dir / kManifestName;
  Manifest manifest = manifest_of_text(read_file_up_to(ops, file, kMostManifestBytes), file.string());
  const auto step = step_of_name(dir.filename().string());
  if (step && *step != manifest.step) {
    refuse_at(dir, fmt::format("its manifest is of step {}: another checkpoint was given this name",
                               manifest.step));
  }
  return manifest;
}

}  // namespace

bool is_checkpoint(FileOps& ops, const Path& dir) { return ops.kind(dir / kManifestName) == PathKind::file; }

Reader::Reader(FileOps& ops, const Path& dir) : dir_(dir), manifest_(read_manifest(ops, dir)) {
  for (const TensorShape& tensor : manifest_.tensors) numel_[tensor.name] = tensor.numel();
  refuse_foreign_files(ops);
  for (const FileSums& sums : manifest_.files) {
    const FileId id{manifest_.step, static_cast<std::int64_t>(files_.size())};
    files_.emplace_back(ops, dir_ / sums.name, id, sums);
  }
  collect();
  for (const auto& [key, pieces] : pieces_) {
    check_pieces(key, pieces);
    check_dtype(key, pieces.front());
  }
  check_coverage();
}

void Reader::refuse_foreign_files(FileOps& ops) const {
  for (const std::string& name : ops.list(dir_)) {
    if (!is_file_of_checkpoint(name) || name == kManifestName ||
        std::ranges::find(manifest_.files, name, &FileSums::name) != manifest_.files.end())
      continue;
    refuse_at(dir_ / name, fmt::format("is not of this checkpoint, which {} ranks wrote", manifest_.world));
  }
}

void Reader::collect() {
  for (std::size_t f = 0; f < files_.size(); ++f) {
    const std::vector<Entry>& entries = files_[f].entries();
    for (std::size_t e = 0; e < entries.size(); ++e) {
      if (entries[e].key.purpose == kInFlight) add_in_flight(entries[e], files_[f].path());
      pieces_[entries[e].key].push_back({entries[e].columns, entries[e].range, entries[e].dtype, f, e});
    }
  }
  for (auto& [key, pieces] : pieces_) {
    std::ranges::sort(
        pieces, {}, [](const Piece& p) { return std::tuple(p.columns.begin, p.columns.end, p.range.begin); });
  }
}

void Reader::add_in_flight(const Entry& entry, const Path& file) {
  const bool is_new = numel_.emplace(entry.key.tensor, entry.range.end).second;
  if (is_new && entry.range.begin == 0) return;
  refuse_at(file, fmt::format("{} is not one whole tensor beside the model's", shown(name_of(entry))));
}

std::string Reader::name_of_piece(const Key& key, const Piece& piece) const {
  return shown(name_of({key, piece.range, piece.dtype, piece.columns}));
}

void Reader::check_pieces(const Key& key, const Pieces& pieces) const {
  const auto tensor = numel_.find(key.tensor);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    const Path& file = files_[piece.file].path();
    if (tensor == numel_.end())
      refuse_at(file, fmt::format("{}: the manifest has no such tensor", name_of_piece(key, piece)));
    const std::int64_t of = piece.columns.of, rows = tensor->second / of;
    if (tensor->second % of != 0 || piece.range.end > rows * piece.columns.size()) {
      refuse_at(file,
                fmt::format("{}: the tensor has {} elements", name_of_piece(key, piece), tensor->second));
    }
    if (i > 0) check_pair(key, piece, pieces[i - 1]);
  }
}

void Reader::check_pair(const Key& key, const Piece& piece, const Piece& before) const {
  const Path& file = files_[piece.file].path();
  const std::string name = name_of_piece(key, piece),
                    other = fmt::format("{} of {}", name_of_piece(key, before),
                                        files_[before.file].path().filename().string());
  const bool same = piece.columns == before.columns;
  if (piece.columns.of != before.columns.of)
    refuse_at(file, fmt::format("{} sees other rows than {}", name, other));
  if (same ? piece.range.begin < before.range.end : piece.columns.begin < before.columns.end)
    refuse_at(file, fmt::format("{} overlaps {}", name, other));
  if (piece.dtype != before.dtype) {
    refuse_at(file, fmt::format("{} is {}, but {} is {}", name, sc::name_of(piece.dtype), other,
                                sc::name_of(before.dtype)));
  }
}

/// Checks that strategies save this purpose in this dtype: AdamW's state in fp32, parameters and gradients in
/// the dtype of computation.
void Reader::check_dtype(const Key& key, const Piece& piece) const {
  const bool exact = key.purpose == "master" || key.purpose == "momentum" || key.purpose == "variance",
             half = piece.dtype == DType::bf16 || piece.dtype == DType::f16;
  if (key.purpose == kInFlight || piece.dtype == DType::f32 || (half && !exact)) return;
  refuse_at(files_[piece.file].path(), fmt::format("{} is {}: no {} is saved so", name_of_piece(key, piece),
                                                   sc::name_of(piece.dtype), shown(key.purpose)));
}

void Reader::check_coverage() const {
  std::set<std::string> purposes = {weights()};
  for (const auto& [key, pieces] : pieces_) {
    if (key.version == 0 && key.purpose != kInFlight) purposes.insert(key.purpose);
  }
  for (const TensorShape& tensor : manifest_.tensors) {
    for (const std::string& purpose : purposes) check_covered({tensor.name, purpose}, tensor.numel());
  }
}

namespace {

// The pieces, from the first on, that have the same columns as the first.
template <class Pieces>
Pieces same_columns(Pieces pieces) {
  std::size_t count = 0;
  while (count < pieces.size() && pieces[count].columns == pieces.front().columns) ++count;
  return pieces.first(count);
}

}  // namespace

// Checks that the groups of columns cover all columns, and that the pieces of each group cover all elements.
void Reader::check_covered(const Key& key, std::int64_t numel) const {
  std::span<const Piece> left = pieces(key);
  const std::int64_t of = left.front().columns.of, rows = numel / of;
  for (std::int64_t column = 0; column < of;) {
    const Columns found = left.empty() ? Columns{of, of, of} : left.front().columns;
    if (found.begin > column) refuse(key, {column, found.begin}, of);
    const std::span<const Piece> group = same_columns(left);
    std::int64_t covered = 0;
    for (const Piece& piece : group) {
      if (piece.range.begin > covered) refuse(key, {covered, piece.range.begin});
      covered = piece.range.end;
    }
    if (covered < rows * found.size()) refuse(key, {covered, rows * found.size()});
    left = left.subspan(group.size()), column = found.end;
  }
}

void Reader::refuse(const Key& key, Range columns, std::int64_t of) const {
  refuse_at(dir_, fmt::format("columns {} to {} of {} of {} are in no file", columns.begin, columns.end, of,
                              shown(text_of(key))));
}

void Reader::refuse(const Key& key, Range missing) const {
  refuse_at(dir_, fmt::format("elements {} to {} of {} are in no file", missing.begin, missing.end,
                              shown(text_of(key))));
}

const Reader::Pieces& Reader::pieces(const Key& key) const {
  const auto found = pieces_.find(key);
  if (found == pieces_.end()) refuse(key, {0, numel(key.tensor)});
  return found->second;
}

std::vector<Key> Reader::keys() const {
  std::vector<Key> keys;
  for (const auto& [key, pieces] : pieces_) keys.push_back(key);
  return keys;
}

DType Reader::dtype(const Key& key) const { return pieces(key).front().dtype; }

std::string Reader::weights() const {
  const bool master = std::any_of(pieces_.begin(), pieces_.end(), [](const auto& at) {
    return at.first.purpose == "master" && at.first.version == 0;
  });
  return master ? "master" : "parameters";
}

std::int64_t Reader::numel(std::string_view tensor) const {
  const auto found = numel_.find(tensor);
  if (found == numel_.end())
    refuse_at(dir_, fmt::format("has no tensor \"{}\": it is another model's", shown(tensor)));
  return found->second;
}

void Reader::read(const Key& key, Range range, std::span<std::byte> out) {
  const Pieces& all = pieces(key);
  const std::int64_t width = size_of(all.front().dtype);
  if (range.begin < 0 || range.begin > range.end ||
      static_cast<std::int64_t>(out.size()) != range.size() * width) {
    throw std::logic_error(fmt::format("checkpoint: {} bytes for elements {} to {} of {}", out.size(),
                                       range.begin, range.end, text_of(key)));
  }
  all.front().columns == Columns{} ? read_columns(key, all, range, out) : read_rows(key, range, out);
}

// Reads elements `range` of the columns that all pieces in `of` have.
void Reader::read_columns(const Key& key, std::span<const Piece> of, Range range, std::span<std::byte> out) {
  const std::int64_t width = size_of(of.front().dtype);
  auto piece = std::ranges::upper_bound(of, range.begin, {}, [](const Piece& p) { return p.range.end; });
  for (std::int64_t at = range.begin; at < range.end; ++piece) {
    if (piece == of.end() || piece->range.begin > at) refuse(key, {at, range.end});
    const Range part{at, std::min(range.end, piece->range.end)};
    files_[piece->file].read(piece->entry, part,
                             out.subspan(static_cast<std::size_t>((at - range.begin) * width),
                                         static_cast<std::size_t>(part.size() * width)));
    at = part.end;
  }
}

// [anchor: columns-become-rows]
// For each group of columns, reads the rows that `range` touches in one piece, and copies their elements to
// their places.
void Reader::read_rows(const Key& key, Range range, std::span<std::byte> out) {
  std::span<const Piece> left = pieces(key);
  const std::int64_t of = left.front().columns.of, width = size_of(left.front().dtype);
  const Range rows{range.begin / of, ceil_div(range.end, of)};
  std::vector<std::byte> values;
  while (!left.empty()) {
    const std::span<const Piece> group = same_columns(left);
    const Columns& c = group.front().columns;
    values.resize(static_cast<std::size_t>(rows.size() * c.size() * width));
    read_columns(key, group, {rows.begin * c.size(), rows.end * c.size()}, values);
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      const std::int64_t begin = std::max(range.begin, row * of + c.begin),
                         end = std::min(range.end, row * of + c.end);
      if (begin >= end) continue;
      const std::int64_t from = (row - rows.begin) * c.size() + (begin - row * of - c.begin);
      std::memcpy(out.data() + (begin - range.begin) * width, values.data() + from * width,
                  static_cast<std::size_t>((end - begin) * width));
    }
    left = left.subspan(group.size());
  }
}

void Reader::verify(std::int64_t part, std::int64_t parts) {
  for (RankFile& file : files_) file.verify(part, parts);
}

std::int64_t Reader::blocks() const {
  std::int64_t blocks = 0;
  for (const RankFile& file : files_) blocks += file.blocks();
  return blocks;
}

Bytes Reader::bytes() const {
  Bytes bytes{0};
  for (const FileSums& sums : manifest_.files) bytes += Bytes(sums.bytes);
  return bytes;
}

}  // namespace sc::checkpoint
