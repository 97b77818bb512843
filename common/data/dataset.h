// From `data.source` to rows of tokens: finds, unpacks, tokenises once, maps, checks. No torch.
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

/// The documents of a plain text: its paragraphs, longest runs of lines that are not blank (only blanks,
/// tabs, carriage returns). Each without the newline after its last line.
std::vector<std::string_view> paragraphs(std::string_view text);

/// The token file of a text file, made on first use:
/// <cache>/<16 digits of the text's sha256>-<tokenizer>-<form>-<version>.bin, made anew where it is not what
/// its sidecar says. Complete or not at all; any number of processes may ask at once, each may do the work,
/// the results are equal. Form "stream" is the text as it stands (pack); "documents" is every paragraph
/// followed by end-of-text (pad_*).
///   Errors  InputError: exit 65 for a text that is empty, unreadable or holds a zero byte; exit 73 if
///           `cache` cannot be written.
Path tokenize_once(FileOps& ops, const Path& text, const Tokenizer& tokenizer, Packing packing,
                   const Path& cache);

/// What the order of training rows follows from, besides the content of the file: of two runs for which this
/// is equal a position is the same row.
struct RowOrder {
  RowFormat format;
  std::int64_t tokens = 0;  // that are trained on: so many of the file's, from the first on
  std::uint64_t seed = 0;   // of every epoch's permutation
  bool operator==(const RowOrder&) const = default;
};
/// `all`: tokens of the file.
RowOrder row_order(const Workload& workload, std::int64_t all);

/// The data of a run, mapped. Movable; rows stay valid.
class Dataset {
 public:
  /// `workload.data.source`: "austen", a token file (recognised by its content or by the suffix .bin) or a
  /// text file. The tail of the tokens, validation_fraction of them rounded down, is the validation part;
  /// rows never cross the border.
  ///   Errors  InputError: exit 65 with have, need and fix if a token is not below model.vocab, if there is
  ///           no training row, or if validation has fewer than validation_rows; those of
  ///           tokenize_once and TokenFile, and of check_sidecar(); exit 64 for a tokenizer that cannot read
  ///           text.
  ///   validation   a file of the same kinds, which is the validation part instead of the tail; empty: none.
  ///                Then the tail is neither trained on nor read.
  static Dataset open(FileOps& ops, const Workload& workload, const Path& cache,
                      const std::string& validation = "");

  [[nodiscard]] const Rows& train() const { return train_; }
  /// No rows if validation_fraction is 0.
  [[nodiscard]] const Rows& validation() const { return validation_; }
  /// Of the token file, whatever they are used for.
  [[nodiscard]] std::int64_t num_tokens() const { return static_cast<std::int64_t>(file_.tokens().size()); }
  /// The token file that is mapped.
  [[nodiscard]] const Path& tokens_path() const { return file_.path(); }
  /// Of the texts and their rows, lines that their owner should read; some may be empty.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }
  /// That of the validation text, if it is a file of its own.
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

/// All of a file as rows, to be evaluated.
class TestSet {
 public:
  ///   Errors  as Dataset::open(); exit 65 where not one row fits.
  TestSet(FileOps& ops, const std::string& source, const Workload& workload, const Path& cache);
  [[nodiscard]] const Rows& rows() const { return rows_; }
  [[nodiscard]] const Path& tokens_path() const { return file_.path(); }
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }  // as Dataset's

 private:
  TokenFile file_;
  Rows rows_;
  std::vector<std::string> notes_;
};

}  // namespace sc
