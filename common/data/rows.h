// How a stream of tokens becomes rows of T inputs and T targets. No torch.
//
//   pack          row r is tokens [r T, r T + T], T + 1 of them: inputs are all but the last, targets all but
//                 the first. The last target of a row is the first input of the next; tokens after the last
//                 whole row are not used.
//   pad_masked    row r is document r and the end-of-text token after it, cut to T + 1 tokens. A shorter row
//                 is filled with end-of-text inputs whose targets are -1: they cost time and no loss.
//   pad_unmasked  the same, but the filling's targets are end-of-text too. The model learns to repeat it, and
//                 the mean loss falls for that reason alone: the mistake of training loops that forget the
//                 mask.
//
// A document is a longest run of tokens without end-of-text; empty ones are skipped.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/config/workload.h"
#include "common/data/tokenizer.h"

namespace sc {

/// The number of a row within its part of the data (training or validation).
using RowIndex = std::int64_t;
inline constexpr std::int64_t kNoTarget = -1;

struct RowFormat {
  Packing packing = Packing::pack;
  std::int64_t sequence = 1;  // T
  TokenId end_of_text = 0;    // ends documents and fills rows; unused by pack
  bool operator==(const RowFormat&) const = default;
};

class Rows {
 public:
  Rows() = default;  // has no rows
  /// Cuts `tokens`, which must outlive this object, into rows.
  Rows(std::span<const TokenId> tokens, const RowFormat& format);

  [[nodiscard]] RowIndex count() const { return count_; }
  [[nodiscard]] std::int64_t num_tokens() const { return static_cast<std::int64_t>(tokens_.size()); }
  /// How many tokens are in no row: ends of cut documents, or with pack those after the last row.
  [[nodiscard]] std::int64_t unread() const { return unread_; }
  /// The number of a row's targets that are not kNoTarget; at most T.
  [[nodiscard]] std::int64_t targets(RowIndex row) const;
  /// Writes one row to `tokens` and `targets`, [T] each.
  void fill(RowIndex row, std::span<std::int64_t> tokens, std::span<std::int64_t> targets) const;
  [[nodiscard]] const RowFormat& format() const { return format_; }

 private:
  struct Document {
    std::int64_t begin = 0, length = 0;
  };
  void find_documents();

  std::span<const TokenId> tokens_;
  RowFormat format_;
  RowIndex count_ = 0;
  std::int64_t unread_ = 0;
  std::vector<Document> documents_;  // empty with pack
};

}  // namespace sc
