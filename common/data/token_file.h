// Token files in the format of llm.c's 2-byte token files, so that either program reads the other's. No
// torch.
//   1024 bytes   256 x int32, little-endian: magic 20240520, version 1, count of tokens, zeros
//   2 x count    uint16, little-endian: the tokens
// A sidecar FILE.bin.json says how the tokens were made, with their checksum.
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

/// Writes a token file, completely or not at all.
///   Errors  those of atomic_write_file.
void write_token_file(FileOps& ops, const Path& path, std::span<const TokenId> tokens);

Path sidecar_of(const Path& tokens);
/// The JSON of a token file's sidecar: {"tokens": count, "tokens_xxh3": "16 digits", "tokenizer": "name"}.
std::string sidecar_text(std::span<const TokenId> tokens, std::string_view tokenizer);

/// Whether a file starts like one of llm.c's binary files, of any kind or version.
bool looks_like_token_file(std::string_view content);

/// A memory-mapped token file. Opening reads the header; tokens are read from disk when they are used.
class TokenFile {
 public:
  /// Opens a token file.
  ///   Errors  InputError (exit 65): magic, version, or a size that contradicts the count.
  explicit TokenFile(const Path& path);
  [[nodiscard]] std::span<const TokenId> tokens() const { return tokens_; }
  [[nodiscard]] const Path& path() const { return file_.path(); }
  /// Reads and checks every token.
  ///   Errors  InputError (exit 65) with the first position and value that is not below `vocab`.
  void check_tokens(std::int64_t vocab) const;
  /// Compares the token file with its sidecar, if there is one.
  ///   Errors  InputError (exit 65): other tokens, or another tokenizer.
  void check_sidecar(FileOps& ops, std::string_view tokenizer) const;

 private:
  MappedFile file_;
  std::span<const TokenId> tokens_;
};

}  // namespace sc
