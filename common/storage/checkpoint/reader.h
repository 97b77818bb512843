// A checkpoint as one set of whole tensors, however its writers cut them. No torch.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/storage/checkpoint/manifest.h"
#include "common/storage/checkpoint/rank_file.h"

namespace sc::checkpoint {

/// Reads any range of any tensor, from as many files as needed. Ranks read what they need, without messages.
///   Opening  reads manifest and headers, and checks that they fit together: all files exist with their size
///            and no other rank-*.safetensors is there; for every key the entries have one dtype that its
///            purpose may have, view the tensor as rows of one length, and do not overlap. Coverage: if a
///            purpose has any entry of version 0, it holds each tensor of the manifest whole; and there are
///            weights (`master` or `parameters`). Older versions may have holes. Tensors in flight are not
///            the model's.
///   Memory   the callers' pieces, and one block.
///   Threads  one.
///   Errors   InputError (exit 65) with the file, and the key or the tensor.
class Reader {
 public:
  /// Opens the checkpoint `dir`. If its name is step-NNNNNN, the manifest must have that step.
  Reader(FileOps& ops, const Path& dir);

  [[nodiscard]] const Path& path() const { return dir_; }
  [[nodiscard]] const Manifest& manifest() const { return manifest_; }
  [[nodiscard]] std::vector<Key> keys() const;
  [[nodiscard]] bool holds(const Key& key) const { return pieces_.count(key) != 0; }
  /// The dtype of a key's values.
  ///   Errors  InputError if the key has no entry.
  [[nodiscard]] DType dtype(const Key& key) const;
  /// The purpose with the exact weights: "master" if there is one, otherwise "parameters".
  [[nodiscard]] std::string weights() const;
  [[nodiscard]] std::int64_t numel(std::string_view tensor) const;

  /// Reads elements [range.begin, range.end) of the flattened tensor, bit for bit as written.
  ///   out     range.size() * size_of(dtype(key)) bytes, any alignment.
  ///   Checks  each block that it touches.
  ///   Errors  InputError if the key does not hold all of the range, or if a block is damaged.
  void read(const Key& key, Range range, std::span<std::byte> out);

  /// Checks every block, or with `parts` > 1 about one in so many: parts 0 .. parts - 1 together check all,
  /// so that ranks can share the work.
  void verify(std::int64_t part = 0, std::int64_t parts = 1);
  [[nodiscard]] std::int64_t blocks() const;
  /// The ranks' files, rank r's at index r.
  [[nodiscard]] std::span<const RankFile> files() const { return files_; }
  /// The bytes of all files without the manifest.
  [[nodiscard]] Bytes bytes() const;

 private:
  /// Where one entry's values are.
  struct Piece {
    Columns columns;
    Range range;
    DType dtype;
    std::size_t file, entry;
  };
  using Pieces = std::vector<Piece>;  // of one key: ascending columns, and for equal columns ascending ranges
  void refuse_foreign_files(FileOps& ops) const;
  void collect();
  void add_in_flight(const Entry& entry, const Path& file);
  void check_pieces(const Key& key, const Pieces& pieces) const;
  void check_pair(const Key& key, const Piece& piece, const Piece& before) const;
  void check_dtype(const Key& key, const Piece& piece) const;
  void check_coverage() const;
  void check_covered(const Key& key, std::int64_t numel) const;
  [[nodiscard]] const Pieces& pieces(const Key& key) const;
  [[nodiscard]] std::string name_of_piece(const Key& key, const Piece& piece) const;
  void read_columns(const Key& key, std::span<const Piece> of, Range range, std::span<std::byte> out);
  void read_rows(const Key& key, Range range, std::span<std::byte> out);
  [[noreturn]] void refuse(const Key& key, Range missing) const;
  [[noreturn]] void refuse(const Key& key, Range columns, std::int64_t of) const;

  Path dir_;
  Manifest manifest_;
  std::map<std::string, std::int64_t, std::less<>> numel_;
  std::vector<RankFile> files_;
  std::map<Key, Pieces> pieces_;
};

bool is_checkpoint(FileOps& ops, const Path& dir);

}  // namespace sc::checkpoint
