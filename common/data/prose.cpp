#include "common/data/prose.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cctype>

#include "common/base/text.h"
#include "common/input/json_parse.h"
#include "common/storage/git_lfs.h"

namespace sc {
namespace {

constexpr std::string_view kBlank = " \t\r\n";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

bool is_object(std::string_view line) {
  constexpr JsonLimits kLimits{.bytes = std::size_t{16} << 20U};
  if (!line.starts_with('{') || !line.ends_with('}')) return false;
  try {
    return parse_json(line, kLimits).is_object();
  } catch (const JsonError&) {
    return false;
  }
}

// Whether a text begins like a JSON object, complete or cut off: {"name":
bool opens_an_object(std::string_view text) {
  if (!text.starts_with('{')) return false;
  const std::string_view rest = trimmed(text.substr(1));
  if (!rest.starts_with('"')) return false;
  std::size_t end = 1;
  while (end < rest.size() && rest[end] != '"') end += rest[end] == '\\' ? 2 : 1;
  return end < rest.size() && trimmed(rest.substr(end + 1)).starts_with(':');
}

// Whether the whole text is one JSON array, which "[Illustration]" is not.
bool is_array(std::string_view text) {
  if (!text.starts_with('[') || !text.ends_with(']')) return false;
  const std::string_view rest = trimmed(text.substr(1));
  return rest.find_first_of("{[\"") == 0 ||
         text.find_first_not_of("0123456789+-.,eE[] \t\r\n") == std::string_view::npos;
}

// Whether a text begins with a tag, a declaration or a comment of HTML or XML ("<unk>" is none).
bool is_marked_up(std::string_view begin) {
  if (!begin.starts_with('<') || begin.size() < 2) return false;
  if (begin[1] == '?' || begin[1] == '!') return true;
  const std::string_view tag = begin.substr(1, begin.find_first_of(" \t\r\n>") - 1);
  std::string name(tag.substr(0, 16));
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return c < 128 ? std::tolower(c) : c; });
  const bool closes = begin.find(fmt::format("</{}>", tag)) != std::string_view::npos;
  return name == "html" || (closes && !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
                              return std::isalnum(c) != 0 || c == '-' || c == '_' || c == ':';
                            }));
}

}  // namespace

std::string_view without_bom(std::string_view text) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  return text.starts_with(kMark) ? text.substr(kMark.size()) : text;
}

std::string_view take_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  return line;
}

bool is_blank(std::string_view text) { return text.find_first_not_of(kBlank) == std::string_view::npos; }

std::int64_t count_of(std::string_view word, std::string_view text) {
  std::int64_t count = 0;
  for (std::size_t at = 0; (at = text.find(word, at)) != std::string_view::npos; at += word.size()) ++count;
  return count;
}

std::string mark_note(std::int64_t count, const Path& path) {
  constexpr const char* kSays =
      "{0} stands {1} times in {2}, and is trained as text: prepare {2} --separator '{0}' makes documents";
  return count == 0 ? "" : fmt::format(kSays, kEndMark, human_count(count), path.string());
}

std::string crlf_note(std::string_view text, const Path& path) {
  const std::int64_t windows = count_of("\r\n", text);
  if (windows == 0) return "";
  return fmt::format(
      "{} of {} lines end in CR LF, as on Windows: each CR is trained with the rest (dos2unix {} removes "
      "them)",
      human_count(windows), human_count(std::ranges::count(text, '\n')), path.string());
}

std::optional<NoProse> what_is_no_prose(std::string_view content) {
  const std::string_view text = trimmed(without_bom(content));
  const std::string_view first = trimmed(text.substr(0, text.find('\n')));
  if (text.starts_with("%PDF-")) return NoProse{"is a PDF"};
  if (is_marked_up(text)) return NoProse{"is HTML or XML, whose marks would be trained"};
  if (first.size() < text.size() && is_object(first))
    return NoProse{"holds lines of JSON, whose braces and names would be trained", true};
  if (is_object(text))
    return NoProse{"is JSON, whose braces and names would be trained", first.size() == text.size()};
  if (opens_an_object(text) || is_array(text))
    return NoProse{"is JSON, whose braces and names would be trained"};
  return {};
}

void require_text(std::string_view content, const Path& path, bool as_text, std::string_view flags) {
  const auto refuse = [&](const std::string& what, const std::string& fix) {
    throw InputError(ExitCode::data, path.string(), what, fix);
  };
  if (without_bom(content).empty()) refuse("is empty", "give a text file with some text in it");
  if (content.starts_with("PAR1"))
    refuse("is parquet", fmt::format("prepare {}{} --out FILE.bin", path.string(), flags));
  if (const std::size_t zero = content.find('\0'); zero != std::string_view::npos)
    refuse(fmt::format("is not text: byte {} is zero", zero),
           "give UTF-8; for UTF-16: iconv -f UTF-16 -t UTF-8; unpack what is compressed");
  require_no_lfs_pointer(without_bom(content), path);
  if (as_text) return;
  const std::string kind = path.extension().string();
  const std::optional<NoProse> found = kind == ".csv" || kind == ".tsv"
                                           ? NoProse{"is a table, whose columns would be trained"}
                                           : what_is_no_prose(content);
  if (!found) return;
  const std::string name = path.string();
  refuse(found->what,
         found->lines_of_json
             ? fmt::format("prepare {} --format jsonl --column text{} --out FILE.bin; or there "
                           "--format text, if it is to be trained as it stands",
                           name, flags)
             : fmt::format("give the text in it; or prepare {} --format text{} --out FILE.bin, if "
                           "it is to be trained as it stands",
                           name, flags));
}

}  // namespace sc
