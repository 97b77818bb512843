#include "common/config/json_reader.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "common/base/check.h"
#include "common/base/text.h"
#include "common/config/other_names.h"
#include "common/input/json_parse.h"
#include "common/input/printable.h"

namespace sc {
namespace {

// The largest file in configs/ has 1.1 kB. Paths are bounded because messages hold the path of every key:
// with 64 levels of long names they would take memory quadratic in the file's size.
constexpr JsonLimits kLimits{.bytes = std::size_t{64} << 10U};
constexpr std::size_t kMostPath = 200;

constexpr std::string_view kBlank = " \t\r\n";
constexpr const char* kJsonRules =
    "JSON: one object, double quotes round keys and texts, a comma between entries, no comments";

/// One token of a JSON file, valid or not: quoted text, a number, a word, or a punctuation mark.
struct Token {
  std::size_t begin = 0, end = 0;  // `end` is npos for text without a closing quote
  bool is_scalar = false;          // not one of {}[],:
};

std::vector<Token> tokens_of(std::string_view text) {
  constexpr std::string_view kMarks = "{}[],:", kBom = "\xEF\xBB\xBF";
  std::vector<Token> tokens;
  std::size_t at = text.starts_with(kBom) ? kBom.size() : 0;
  while ((at = text.find_first_not_of(kBlank, at)) != std::string_view::npos) {
    Token token{at, at + 1, kMarks.find(text[at]) == std::string_view::npos};
    if (text[at] == '"') {
      while (token.end < text.size() && text[token.end] != '"') token.end += text[token.end] == '\\' ? 2 : 1;
      token.end = token.end < text.size() ? token.end + 1 : std::string_view::npos;
    } else if (token.is_scalar) {
      token.end = std::min(text.find_first_of("{}[],:\" \t\r\n", at), text.size());
    }
    tokens.push_back(token);
    at = token.end;
  }
  return tokens;
}

/// A place as "file:line:column". Columns count characters, so UTF-8 continuation bytes take none.
std::string place_of(std::string_view text, std::size_t offset, const std::string& name) {
  const std::string_view before = text.substr(0, offset);
  // On the first line rfind gives npos, and npos + 1 is 0.
  const std::string_view line = before.substr(before.rfind('\n') + 1);
  const auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  return fmt::format("{}:{}:{}", name, 1 + std::ranges::count(before, '\n'),
                     1 + std::ranges::count_if(line, begins));
}

bool says(const std::string& message, std::string_view words) {
  return message.find(words) != std::string::npos;
}

/// What a syntax error is, and its fix. With `in_string`, the parser stopped inside the text that begins at
/// `refused`.
std::pair<std::string, std::string> explain_syntax(std::string_view text, std::size_t refused, bool in_string,
                                                   const std::string& message) {
  const char token = refused < text.size() ? text[refused] : '\0';
  const std::size_t last = text.substr(0, refused).find_last_not_of(kBlank);
  if (last == std::string_view::npos || says(message, "unexpected end of input"))
    return {"the file ends before its object is closed",
            "add the missing brace, or restore the rest of the file"};
  if (in_string) return {"a text without its closing quote", "add the quote"};
  if (last != std::string_view::npos && text[last] == ',' && (token == '}' || token == ']'))
    return {"a comma before a closing brace", "remove the comma"};
  if (token == '/' || token == '#')
    return {"comments are not part of JSON", "remove it; docs/config.md says what each key means"};
  if (token == '\'') return {"texts and keys stand in double quotes", "write \" instead of '"};
  if (token == '"' && says(message, "expected '}'"))
    return {"a comma is missing before this key", "add the comma"};
  return {"not JSON: " + json_words(message), kJsonRules};
}

/// Receives the parser's events and throws at the first thing that a configuration cannot hold. The parser
/// reports no places, so they come from the tokens, whose scalars have the parser's order.
class Reader {
 public:
  Reader(std::string_view text, const std::string& name)
      : text_(text), name_(name), tokens_(tokens_of(text)) {
    std::ranges::copy_if(tokens_, std::back_inserter(scalars_), &Token::is_scalar);
  }

  std::vector<JsonEntry> read() {
    try {
      const json all =
          json::parse(text_.begin(), text_.end(), [this](int, json::parse_event_t event, json& value) {
            take(event, value);
            return true;
          });
    } catch (const json::parse_error& error) {
      refuse_syntax(error.byte, error.what());
    } catch (const json::out_of_range&) {
      fail(scalars_.at(taken_).begin, path() + ": the number is too large", "give a finite number");
    }
    return std::move(entries_);
  }

 private:
  using json = nlohmann::json;

  void take(json::parse_event_t event, const json& value) {
    using Event = json::parse_event_t;
    if (event == Event::object_start) groups_.push_back(groups_.empty() ? "" : path() + ".");
    if (event == Event::object_end) groups_.pop_back();
    if (event == Event::array_start) {  // the first array of the file
      const auto at =
          std::ranges::find(tokens_, '[', [this](const Token& token) { return text_[token.begin]; });
      require_object(at->begin);
      fail(at->begin, path() + ": no key takes a list", "give one value");
    }
    if (event == Event::key) take_key(scalars_.at(taken_++), value.get_ref<const std::string&>());
    if (event == Event::value) take_scalar(scalars_.at(taken_++), value);
  }

  void take_key(const Token& token, const std::string& name) {
    if (groups_.back().size() + name.size() > kMostPath)
      fail(token.begin, fmt::format("\"{}\": no key is that long", shown(name)),
           "docs/config.md lists all keys");
    key_ = name;
    key_where_ = place_of(text_, token.begin, name_);
    const auto [first, is_new] = seen_.emplace(path(), key_where_);
    if (!is_new)
      fail(token.begin, fmt::format("\"{}\" is given twice, first at {}", path(), first->second),
           "remove one of them");
  }

  void take_scalar(const Token& token, const json& value) {
    require_object(token.begin);
    if (value.is_null())
      fail(token.begin, path() + ": null is not a value", "remove the key: its default holds then");
    entries_.push_back({path(), as_written(token, value), key_where_, place_of(text_, token.begin, name_)});
  }

  // A number stays text, so that an integer of 70 bits reaches the field unrounded and is refused there.
  [[nodiscard]] Value as_written(const Token& token, const json& value) const {
    if (value.is_string()) return {Value::Form::text, value.get<std::string>()};
    const std::string word(text_.substr(token.begin, token.end - token.begin));
    if (value.is_boolean()) return {Value::Form::boolean, word};
    const bool whole = word.find_first_of(".eE") == std::string::npos;
    return {whole ? Value::Form::integer : Value::Form::real, word};
  }

  // Reports a syntax error at the token where the parser stopped: one character past a number or word.
  [[noreturn]] void refuse_syntax(std::size_t read, const std::string& message) const {
    const auto newest = [read](const std::vector<Token>& tokens) {
      const auto after =
          std::ranges::find_if(tokens, [read](const Token& token) { return token.begin >= read; });
      return after == tokens.begin() ? Token{} : *std::prev(after);
    };
    const Token token = newest(tokens_);
    const bool in_string = token.begin < text_.size() && text_[token.begin] == '"' && read < token.end;
    const bool ends = says(message, "unexpected end of input") && !in_string;
    const bool scalar = says(message, "number") || says(message, "invalid literal");
    const std::size_t refused = ends ? text_.size() : scalar ? newest(scalars_).begin : token.begin;
    const auto [what, fix] = explain_syntax(text_, refused, in_string, message);
    fail(refused, what, fix);
  }

  [[noreturn]] void fail(std::size_t offset, const std::string& what, const std::string& fix) const {
    throw InputError(ExitCode::usage, place_of(text_, offset, name_), what, fix);
  }
  [[nodiscard]] std::string path() const { return (groups_.empty() ? "" : groups_.back()) + key_; }

  void require_object(std::size_t offset) const {
    if (groups_.empty()) fail(offset, "the file must hold one object", kJsonRules);
  }

  std::string_view text_;
  const std::string& name_;
  std::vector<Token> tokens_, scalars_;
  std::size_t taken_ = 0;  // scalars that the parser has reported so far
  std::vector<JsonEntry> entries_;
  std::vector<std::string> groups_;  // the path of each open object, with a trailing dot
  std::string key_, key_where_;
  std::map<std::string, std::string> seen_;
};

// The JSON files in the folder of `path`, spelled with that folder as `path` spells it, for "did you mean".
std::vector<std::string> files_beside(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::vector<std::string> names;
  std::error_code ignored;  // a folder that does not exist has no files
  for (const auto& entry : std::filesystem::directory_iterator(folder.empty() ? "." : folder, ignored)) {
    if (entry.path().extension() == ".json") names.push_back((folder / entry.path().filename()).string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::vector<JsonEntry> read_json(std::string_view text, const std::string& name) {
  try {
    require_bounded(text, kLimits);
  } catch (const JsonError& error) {
    throw InputError(ExitCode::usage, place_of(text, error.byte(), name), error.what(), kJsonRules);
  }
  return Reader(text, name).read();
}

std::string read_config_file(const std::string& path, const std::string& asked_by) {
  std::error_code absent;
  std::ifstream file;  // not opened unless regular: opening a pipe would wait for its writer
  if (std::filesystem::is_regular_file(path, absent)) file.open(path, std::ios::binary);
  const bool readable = file.is_open();
  // Reads one byte more than allowed, so that read_json() refuses a larger file.
  std::string content(readable ? kLimits.bytes + 1 : 0, '\0');
  file.read(content.data(), static_cast<std::streamsize>(content.size()));
  content.resize(static_cast<std::size_t>(file.gcount()));
  if (!readable || file.bad()) {
    // Somebody who types --strategy zero2 is told of lessons/03_zero2/config.json.
    const std::string ours = ours_for(path), near = nearest(path, files_beside(path));
    throw InputError(
        ExitCode::usage, asked_by, path + " cannot be read",
        !ours.empty() ? ours
        : near.empty()
            ? "give the path of a JSON file, e.g. configs/tiny.json, as seen from the current directory"
            : "did you mean " + near + "?");
  }
  return content;
}

}  // namespace sc
