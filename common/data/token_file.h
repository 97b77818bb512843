// Token ids in a file, in the format of llm.c's 2-byte token files, so that its files work here and ours
// there. No torch.
//   1024 bytes   256 x int32, little-endian: magic 20240520, version 1, count of tokens, zeros
//   2 x count    uint16, little-endian: the tokens
// Beside FILE.bin, FILE.bin.json says how they were made, with their sum.
// Source: github.com/karpathy/llm.c, dev/data/data_common.py (write_datafile) and llmc/dataloader.h.
#pragma once

#include <span>

#include "common/data/tokenizer.h"
#include "common/storage/file_ops.h"
#include "common/storage/mapped_file.h"

namespace sc {

inline constexpr std::int32_t kTokenFileMagic = 20240520;
inline constexpr std::int32_t kTokenFileVersion = 1;
inline constexpr std::int64_t kTokenFileHeaderBytes = 1024;

/// Writes a token file, complete or not at all.
///   Errors  those of atomic_write_file.
void write_token_file(FileOps& ops, const Path& path, std::span<const TokenId> tokens);

Path sidecar_of(const Path& tokens);
/// What every sidecar says: {"tokens": how many, "tokens_xxh3": "16 digits", "tokenizer": "name"}.
std::string sidecar_text(std::span<const TokenId> tokens, std::string_view tokenizer);

/// Does the file start like one of llm.c's binary files, of whatever kind or version?
bool looks_like_token_file(std::string_view content);

/// A mapped token file. Opening reads the header; the tokens are read when they are used.
class TokenFile {
 public:
  ///   Errors  InputError (exit 65): magic, version, or a size that contradicts the count.
  explicit TokenFile(const Path& path);
  [[nodiscard]] std::span<const TokenId> tokens() const { return tokens_; }
  [[nodiscard]] const Path& path() const { return file_.path(); }
  /// Reads every token.
  ///   Errors  InputError (exit 65) with the first position and value that is not below `vocab`.
  void check_tokens(std::int64_t vocab) const;
  /// Compares it with its sidecar, if there is one.
  ///   Errors  InputError (exit 65): other tokens, or another tokenizer.
  void check_sidecar(FileOps& ops, std::string_view tokenizer) const;

 private:
  MappedFile file_;
  std::span<const TokenId> tokens_;
};

}  // namespace sc
