// From `data.source` to rows of tokens: finds, unpacks, tokenizes once, maps and checks. No torch.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/config/workload.h"
#include "common/data/rows.h"
#include "common/data/token_file.h"
#include "common/data/tokenizer.h"
#include "common/storage/file_ops.h"

namespace sc {

/// The documents of a plain text are its paragraphs: longest runs of lines that are not blank (blanks, tabs,
/// carriage returns). Each comes without the newline after its last line.
std::vector<std::string_view> paragraphs(std::string_view text);

/// The token file of a text file, made on first use and again if it does not match its sidecar: <cache>/<16
/// digits of the text's sha256>-<tokenizer>-<form>-<version>.bin. It is written completely or not at all. Any
/// number of processes may ask at the same time; each may do the work, with equal results. Form "stream" is
/// the whole text (pack); "documents" is every paragraph followed by end-of-text (pad_*).
///   Errors  InputError: exit 65 for a text that is empty, unreadable or holds a zero byte; exit 73 if
///           `cache` cannot be written.
Path tokenize_once(FileOps& ops, const Path& text, const Tokenizer& tokenizer, Packing packing,
                   const Path& cache);

/// Everything but the file's content that the order of training rows depends on: two runs with equal RowOrder
/// have the same row at each position.
struct RowOrder {
  RowFormat format;
  std::int64_t tokens = 0;  // trained on: the file's first ones
  std::uint64_t seed = 0;   // of the epochs' permutations
  bool operator==(const RowOrder&) const = default;
};
/// `all` is the number of tokens in the file.
RowOrder row_order(const Workload& workload, std::int64_t all);

/// The memory-mapped data of a run. Movable; rows stay valid.
class Dataset {
 public:
  /// Opens `workload.data.source`: "austen", a token file (recognised by its content or the suffix .bin) or a
  /// text file. The validation part is the tail of the tokens, validation_fraction of them rounded down; rows
  /// never cross the border.
  ///   Errors  InputError: exit 65 with have, need and fix if a token is not below model.vocab, if there is
  ///           no training row, or if validation has fewer than validation_rows; those of tokenize_once,
  ///           TokenFile and check_sidecar(); exit 64 for a tokenizer that cannot read text.
  ///   validation   a file of the same kinds, used as the validation part; then the tail is neither trained
  ///                on nor read. Empty: the tail is used.
  static Dataset open(FileOps& ops, const Workload& workload, const Path& cache,
                      const std::string& validation = "");

  [[nodiscard]] const Rows& train() const { return train_; }
  /// Empty if validation_fraction is 0.
  [[nodiscard]] const Rows& validation() const { return validation_; }
  /// The number of tokens in the token file, whatever they are used for.
  [[nodiscard]] std::int64_t num_tokens() const { return static_cast<std::int64_t>(file_.tokens().size()); }
  [[nodiscard]] const Path& tokens_path() const { return file_.path(); }
  /// Remarks about the texts and their rows for the user; some may be empty.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }
  /// The token file of the validation text, if that is a file of its own.
  [[nodiscard]] std::optional<Path> validation_path() const {
    return validation_file_ ? std::optional(validation_file_->path()) : std::nullopt;
  }

 private:
  Dataset(TokenFile file, std::optional<TokenFile> validation, const Workload& workload,
          const std::string& validation_source);

  TokenFile file_;
  std::optional<TokenFile> validation_file_;
  Rows train_, validation_;
  std::vector<std::string> notes_;
};

/// A whole file as rows, to be evaluated.
class TestSet {
 public:
  /// Opens `source` like Dataset::open().
  ///   Errors  those of Dataset::open(); exit 65 if there is no whole row.
  TestSet(FileOps& ops, const std::string& source, const Workload& workload, const Path& cache);
  [[nodiscard]] const Rows& rows() const { return rows_; }
  [[nodiscard]] const Path& tokens_path() const { return file_.path(); }
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }  // as in Dataset

 private:
  TokenFile file_;
  Rows rows_;
  std::vector<std::string> notes_;
};

}  // namespace sc
