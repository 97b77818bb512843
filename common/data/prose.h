// Text files as people have them: a byte order mark, lines that end as on Windows, and files that hold no
// prose. No torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/storage/file_ops.h"

namespace sc {

/// Without the byte order mark that some editors put at a file's beginning: no text, and no token.
std::string_view without_bom(std::string_view text);

/// Removes and returns the first line, without its end (LF).
std::string_view take_line(std::string_view& text);
/// Whether nothing but blanks and ends of lines stands in a text.
bool is_blank(std::string_view text);
/// How often `word` stands in a text.
std::int64_t count_of(std::string_view word, std::string_view text);

/// What people write between documents, as GPT-2's end of text is called. In a text it is text.
inline constexpr std::string_view kEndMark = "<|endoftext|>";
/// That it stands so often in a file, and what makes documents; empty: it does not.
std::string mark_note(std::int64_t count, const Path& path);

/// "3 of 5 lines end in CR LF: the CR is trained with the rest (dos2unix FILE removes it)"; empty: none does.
std::string crlf_note(std::string_view text, const Path& path);

/// What a file that was given as a text holds instead.
struct NoProse {
  std::string what;  // "holds lines of JSON, ..."
  bool lines_of_json = false;
};
/// Nothing where it may be prose: what its beginning looks like decides.
std::optional<NoProse> what_is_no_prose(std::string_view content);

/// That a file may be tokenised as it stands. As the user says so, `as_text`, anything may but zero bytes.
///   flags   of `prepare` in the fix: " --tokenizer byte"
///   Errors  InputError (exit 65): empty, a zero byte, a pointer of Git LFS, parquet; JSON or lines of it.
void require_text(std::string_view content, const Path& path, bool as_text, std::string_view flags = "");

}  // namespace sc
