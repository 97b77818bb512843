#include "common/data/prepare/inputs.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "common/data/prose.h"
#include "common/data/token_file.h"
#include "common/storage/git_lfs.h"

namespace sc::prepare {
namespace {

[[noreturn]] void refuse_input(const Path& path, const std::string& what, const std::string& fix) {
  throw InputError(ExitCode::data, path.string(), what, fix);
}

std::string_view without_cr(std::string_view line) {
  return line.ends_with('\r') ? line.substr(0, line.size() - 1) : line;
}

bool is_wikitext_name(const std::string& name) {
  return name.starts_with("wiki.") && (name.ends_with(".raw") || name.ends_with(".tokens"));
}

Format format_of(FileOps& ops, const Path& path) {
  constexpr std::size_t kHead = 200;
  const std::string first = head_of(*ops.open_read(path), kHead);
  require_no_lfs_pointer(first, path);
  if (first.starts_with("PAR1") || path.extension() == ".parquet") return Format::parquet;
  if (looks_like_token_file(first)) return Format::tokens;
  if (path.extension() == ".bin") {
    refuse_input(path, "does not begin as llm.c's token files do",
                 "--format u16 if it holds bare 2-byte ids (nanoGPT's), or --format text");
  }
  if (path.extension() == ".jsonl" || path.extension() == ".ndjson") return Format::jsonl;
  return is_wikitext_name(path.filename().string()) ? Format::wikitext : Format::text;
}

// Appends the texts below a folder. Links may lead to a folder above, or read already; each is read once.
void add_texts_below(FileOps& ops, const Path& folder, std::set<Path>& seen, std::vector<Path>& found) {
  std::error_code unknown;
  if (!seen.insert(std::filesystem::canonical(folder, unknown)).second) return;
  for (const std::string& name : ops.list(folder)) {
    const Path path = folder / name;
    const PathKind kind = ops.kind(path);
    if (kind == PathKind::directory) {
      add_texts_below(ops, path, seen, found);
    } else if (kind == PathKind::file && path.extension() == ".txt") {
      found.push_back(path);
    }
  }
}

std::vector<Path> texts_below(FileOps& ops, const Path& folder) {
  std::vector<Path> found;
  std::set<Path> seen;
  add_texts_below(ops, folder, seen, found);
  if (!found.empty()) return found;
  for (const std::string& name : ops.list(folder)) {
    if (is_wikitext_name(name))
      refuse_input(folder, "holds no .txt file, but " + name, (folder / name).string());
  }
  refuse_input(folder, "holds no .txt file", "name the files, or a folder with .txt files");
}

bool is_article_heading(std::string_view with_cr) {
  const std::string_view line = without_cr(with_cr);
  constexpr std::string_view kMark = " = ", kSection = " = = ";
  return line.size() > 2 * kMark.size() && line.starts_with(kMark) && line.ends_with(kMark) &&
         !line.starts_with(kSection);
}

}  // namespace

std::vector<Input> find_inputs(FileOps& ops, const Options& options) {
  std::vector<Input> inputs;
  const auto add = [&](const Path& path) {
    const bool decide = options.format == Format::automatic;
    inputs.push_back({path, decide ? format_of(ops, path) : options.format});
  };
  for (const std::string& name : options.inputs) {
    const PathKind kind = ops.kind(name);
    if (kind == PathKind::directory) {
      for (const Path& path : texts_below(ops, name)) add(path);
    } else if (kind == PathKind::absent && name == "austen") {
      inputs.push_back({name, Format::text});
    } else if (kind == PathKind::absent && name.find_first_of("*?[") != std::string::npos) {
      refuse_input(name, "is a pattern that matches no file, or stands in quotes",
                   "leave the quotes out: the shell puts the files' names there");
    } else {
      add(name);
    }
  }
  return inputs;
}

std::vector<std::string_view> wikitext_articles(std::string_view text) {
  std::vector<std::string_view> articles;
  bool after_blank = true, headed = false;  // headed: the last article has its heading
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = take_line(rest);
    std::string_view behind = rest;
    const bool heading = after_blank && is_blank(take_line(behind)) && is_article_heading(line);
    if (articles.empty() || (heading && headed)) articles.push_back(line);
    articles.back() = {articles.back().begin(), rest.begin()};
    headed = headed || heading;
    after_blank = is_blank(line);
  }
  return articles;
}

namespace {

// The length of `separator` at the start of `text`, where CR LF may stand for its LF; 0 if it does not.
std::size_t length_of(std::string_view separator, std::string_view text) {
  std::size_t at = 0;
  for (const char c : separator) {
    if (c == '\n' && text.substr(at).starts_with("\r\n")) ++at;
    if (at >= text.size() || text[at] != c) return 0;
    ++at;
  }
  return at;
}

}  // namespace

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  const std::string_view first = separator.starts_with('\n') ? "\r\n" : separator.substr(0, 1);
  for (std::size_t at = 0;
       !separator.empty() && (at = text.find_first_of(first, at)) != std::string_view::npos;) {
    const std::size_t length = length_of(separator, text.substr(at));
    if (length == 0) {
      ++at;
      continue;
    }
    parts.push_back(text.substr(begin, at - begin));
    begin = at += length;
  }
  parts.push_back(text.substr(begin));
  return parts;
}

}  // namespace sc::prepare
