// Checks for texts that users bring: byte order marks, Windows line ends,files that are no prose. No torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/storage/file_ops.h"

namespace sc {

/// Removes the byte order mark that some editors write at a file's beginning; it is not part of the text.
std::string_view without_bom(std::string_view text);

/// Removes and returns the first line of a text, without its line feed.
std::string_view take_line(std::string_view& text);
bool is_blank(std::string_view text);
std::int64_t count_of(std::string_view word, std::string_view text);

/// What people write between documents: GPT-2's end-of-text token by name. Here it is ordinary text.
inline constexpr std::string_view kEndMark = "<|endoftext|>";
/// A remark that kEndMark occurs `count` times in a file, and how to separate documents; empty for 0.
std::string mark_note(std::int64_t count, const Path& path);

/// The remark "3 of 5 lines end in CR LF: the CR is trained with the rest (dos2unix FILE removes it)"; empty
/// if no line ends so.
std::string crlf_note(std::string_view text, const Path& path);

/// What a file holds that is no prose, and what to do with it.
struct NoProse {
  std::string what;  // e.g. "holds lines of JSON, ..."
  bool lines_of_json = false;
};
/// Judges a file by its beginning; nullopt if it may be prose.
std::optional<NoProse> what_is_no_prose(std::string_view content);

/// Checks that a file may be tokenized. With `as_text`, the user's word, only zero bytes are refused.
///   flags   added to `prepare` in the fix, e.g. " --tokenizer byte"
///   Errors  InputError (exit 65): empty, a zero byte, a pointer of Git LFS, parquet; JSON or lines of it.
void require_text(std::string_view content, const Path& path, bool as_text, std::string_view flags = "");

}  // namespace sc
