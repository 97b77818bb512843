// A checkpoint as one set of whole tensors, whatever cuts its writers made. No torch.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/storage/checkpoint/manifest.h"
#include "common/storage/checkpoint/rank_file.h"

namespace sc::checkpoint {

/// Reads any range of any tensor, from as many files as it takes. Everybody reads what he needs: no rank
/// talks to another.
///   Opening  costs manifest and headers, and checks that they fit together: all files are there in their
///            size, no other rank-*.safetensors stands beside them, and for every key the entries have one
///            dtype, one that its purpose is saved in, see rows of one length, and do not overlap. Coverage:
///            a purpose of which version 0 holds anything holds each tensor of the manifest whole, and there
///            are weights (`master` or `parameters`). Older versions may have holes. What is in flight is no
///            tensor of the model.
///   Memory   that of its callers' pieces, and a block.
///   Threads  one.
///   Errors   InputError (exit 65): the file, and the key or the tensor.
class Reader {
 public:
  /// dir: one checkpoint. Its name need not be step-NNNNNN; if it is, the manifest must be of that step.
  Reader(FileOps& ops, const Path& dir);

  [[nodiscard]] const Path& path() const { return dir_; }
  [[nodiscard]] const Manifest& manifest() const { return manifest_; }
  /// Everything that is held at least in part, in ascending order.
  [[nodiscard]] std::vector<Key> keys() const;
  [[nodiscard]] bool holds(const Key& key) const { return pieces_.count(key) != 0; }
  /// Errors  InputError if the key is not held.
  [[nodiscard]] DType dtype(const Key& key) const;
  /// What training goes on from: "master" if there is one, else "parameters".
  [[nodiscard]] std::string weights() const;
  /// Elements of a tensor of the model.
  [[nodiscard]] std::int64_t numel(std::string_view tensor) const;

  /// Elements [range.begin, range.end) of the flattened tensor, bit by bit as they were written.
  ///   out     range.size() * size_of(dtype(key)) bytes, any alignment.
  ///   Checks  each block that it touches.
  ///   Errors  InputError if the key does not hold all of the range, or a block is damaged.
  void read(const Key& key, Range range, std::span<std::byte> out);

  /// Checks every block; with `parts` > 1 about one in so many, so that ranks can
  /// share the work: parts 0 .. parts - 1 together check all.
  void verify(std::int64_t part = 0, std::int64_t parts = 1);
  [[nodiscard]] std::int64_t blocks() const;
  /// Rank r's at r.
  [[nodiscard]] std::span<const RankFile> files() const { return files_; }
  /// Of all files, the manifest aside.
  [[nodiscard]] Bytes bytes() const;

 private:
  /// One entry: where it is.
  struct Piece {
    Columns columns;
    Range range;
    DType dtype;
    std::size_t file, entry;
  };
  using Pieces = std::vector<Piece>;  // of one key: ascending columns, of equal ones ascending ranges
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

/// Whether `dir` holds a manifest.
bool is_checkpoint(FileOps& ops, const Path& dir);

}  // namespace sc::checkpoint
