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

/// The paragraphs of a plain text, which are its documents: longest runs of lines that hold more than blanks,
/// tabs and carriage returns, each run without its last newline.
std::vector<std::string_view> paragraphs(std::string_view text);

/// The path of the token file of a text, <cache>/<16 digits of the text's
/// sha256>-<tokenizer>-<form>-<version>.bin, which is made on first use and again if it does not match its
/// sidecar. It is written completely or not at all. Any number of processes may ask at the same time; each
/// may do the work, with equal results. Form "stream" is the whole text (pack); "documents" is every
/// paragraph followed by end-of-text (pad_*).
///   Errors  InputError: exit 65 for a text that is empty, unreadable or holds a zero byte; exit 73 if
///           `cache` cannot be written.
Path tokenize_once(FileOps& ops, const Path& text, const Tokenizer& tokenizer, Packing packing,
                   const Path& cache);

/// All that the order of training rows depends on, but for the tokens: two runs with equal RowOrder have the
/// same row at each position.
struct RowOrder {
  RowFormat format;
  std::int64_t tokens = 0;  // trained on: the file's first ones
  std::uint64_t seed = 0;   // of the epochs' permutations
  bool operator==(const RowOrder&) const = default;
};
/// The order of the rows of a file with `all` tokens.
RowOrder row_order(const Workload& workload, std::int64_t all);

/// The memory-mapped data of a run. Movable; views of rows stay valid.
class Dataset {
 public:
  /// Opens `workload.data.source`: "austen", a token file (recognised by its content or the suffix .bin) or a
  /// text file. The validation part is the tail of the tokens, validation_fraction of them rounded down; rows
  /// never cross the border.
  ///   validation   a file of the same kinds, used as the validation part; then the tail is neither trained
  ///                on nor read. Empty: the tail is used.
  ///   Errors  InputError: exit 65 with have, need and fix if a token is not below model.vocab, if there is
  ///           no training row, or if validation has fewer than validation_rows; those of tokenize_once,
  ///           TokenFile and check_sidecar(); exit 64 for a tokenizer that cannot read text.
  static Dataset open(FileOps& ops, const Workload& workload, const Path& cache,
                      const std::string& validation = "");

  [[nodiscard]] const Rows& train() const { return train_; }
  /// The rows of the validation part; none if validation_fraction is 0.
  [[nodiscard]] const Rows& validation() const { return validation_; }
  /// The number of tokens in the token file, those of the validation part included.
  [[nodiscard]] std::int64_t num_tokens() const { return static_cast<std::int64_t>(file_.tokens().size()); }
  [[nodiscard]] const Path& tokens_path() const { return file_.path(); }
  /// Remarks for the user about the texts and their rows; some may be empty.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }
  /// The token file of the validation text, if validation is not the tail of the training data.
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

/// All rows of a file, for an evaluation besides the validation (--test).
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
