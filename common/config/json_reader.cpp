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

// The largest file in configs/ has 1.1 kB. Keys stand in messages, each with its path: 64 levels of long
// names would take memory by their square.
constexpr JsonLimits kLimits{.bytes = std::size_t{64} << 10U};
constexpr std::size_t kMostPath = 200;

// Follows what the JSON lexer consumes and remembers where tokens start. The lexer reads one character past a
// number, which may be structural: the starts of scalars are kept apart for that reason.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  void consume() {
    const char c = text_[at_];
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == '"') {
        in_string_ = false;
      }
    } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      in_word_ = false;
    } else if (std::string_view("{}[],:").find(c) != std::string_view::npos) {
      in_word_ = false;
      begin_token(false);
    } else if (c == '"') {
      in_string_ = true;
      in_word_ = false;
      begin_token(true);
    } else if (!in_word_) {
      in_word_ = true;
      begin_token(true);
    }
    ++at_;
  }

  [[nodiscard]] std::string_view text() const { return text_; }
  [[nodiscard]] std::size_t at() const { return at_; }
  [[nodiscard]] bool in_string() const { return in_string_; }
  /// Where a token starts, and the last character before it that is not blank ('\0': none).
  struct Token {
    std::size_t start = 0;
    char before = '\0';
  };
  [[nodiscard]] const Token& token() const { return token_; }    // the newest
  [[nodiscard]] const Token& scalar() const { return scalar_; }  // the newest text, number or word

 private:
  void begin_token(bool scalar) {
    const std::size_t last = text_.substr(0, at_).find_last_not_of(" \t\r\n");
    token_ = {at_, last == std::string_view::npos ? '\0' : text_[last]};
    if (scalar) scalar_ = token_;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  Token token_, scalar_;
  bool in_string_ = false, escaped_ = false, in_word_ = false;
};

// Counts as it goes: nlohmann's lexer copies the iterator, so the count lives in the Scanner.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  explicit CountingIterator(Scanner* scanner) : scanner_(scanner) {}  // null: the end
  reference operator*() const { return scanner_->text()[scanner_->at()]; }
  CountingIterator& operator++() {
    scanner_->consume();
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return done() == other.done(); }
  bool operator!=(const CountingIterator& other) const { return !(*this == other); }

 private:
  [[nodiscard]] bool done() const { return scanner_ == nullptr || scanner_->at() == scanner_->text().size(); }
  Scanner* scanner_;
};

// file:line:col of growing offsets.
class Places {
 public:
  Places(std::string_view text, std::string name) : text_(text), name_(std::move(name)) {}
  std::string at(std::size_t offset) {
    if (offset < at_) at_ = 0, line_ = 1, column_ = 1;
    for (; at_ < offset; ++at_) {
      if (text_[at_] == '\n') {
        ++line_;
        column_ = 1;
      } else if ((static_cast<unsigned char>(text_[at_]) & 0xC0) !=
                 0x80) {  // continuation bytes of UTF-8 take no column
        ++column_;
      }
    }
    return fmt::format("{}:{}:{}", name_, line_, column_);
  }

 private:
  std::string_view text_;
  std::string name_;
  std::size_t at_ = 0, line_ = 1, column_ = 1;
};

constexpr const char* kJsonRules =
    "JSON: one object, double quotes round keys and texts, a comma between entries, no comments";

struct Problem {
  std::string what, fix;
};

bool says(const std::string& message, std::string_view words) {
  return message.find(words) != std::string::npos;
}

// The token that the parser refused: numbers and words were followed by one character more.
Scanner::Token refused_token(const Scanner& scanner, const std::string& message) {
  if (says(message, "unexpected end of input") && !scanner.in_string()) return {scanner.text().size(), '\0'};
  return says(message, "number") || says(message, "invalid literal") ? scanner.scalar() : scanner.token();
}

Problem explain_syntax(const Scanner& scanner, const Scanner::Token& refused, const std::string& message) {
  const char token = refused.start < scanner.text().size() ? scanner.text()[refused.start] : '\0';
  if (says(message, "unexpected end of input")) {
    return {"the file ends before its object is closed",
            "add the missing brace, or restore the rest of the file"};
  }
  if (scanner.in_string()) return {"a text without its closing quote", "add the quote"};
  if (refused.before == ',' && (token == '}' || token == ']')) {
    return {"a comma before a closing brace", "remove the comma"};
  }
  if (token == '/' || token == '#') {
    return {"comments are not part of JSON", "remove it; docs/config.md says what each key means"};
  }
  if (token == '\'') return {"texts and keys stand in double quotes", "write \" instead of '"};
  if (token == '"' && says(message, "expected '}'")) {
    return {"a comma is missing before this key", "add the comma"};
  }
  return {"not JSON: " + json_words(message), kJsonRules};
}

// Receives the parser's events; the first thing that a configuration cannot hold is thrown.
class Reader {
 public:
  Reader(const Scanner& scanner, const std::string& name)
      : scanner_(scanner), places_(scanner.text(), name) {}
  std::vector<JsonEntry> take() { return std::move(entries_); }

  bool null() {
    require_object(scanner_.scalar().start);
    fail(scanner_.scalar().start, path() + ": null is not a value", "remove the key: its default holds then");
  }
  bool boolean(bool on) { return scalar({Value::Form::boolean, on ? "true" : "false"}); }
  bool number_integer(std::int64_t) { return number(); }
  bool number_unsigned(std::uint64_t) { return number(); }
  bool number_float(double, const std::string&) { return number(); }
  bool string(std::string& text) { return scalar({Value::Form::text, text}); }
  bool binary(std::vector<std::uint8_t>&) { return false; }  // not in textual JSON
  bool start_object(std::size_t) {
    groups_.push_back(groups_.empty() ? "" : path() + ".");
    return true;
  }
  bool end_object() {
    groups_.pop_back();
    return true;
  }
  bool start_array(std::size_t) {
    require_object(scanner_.token().start);
    fail(scanner_.token().start, path() + ": no key takes a list", "give one value");
  }
  bool end_array() { return false; }

  bool key(std::string& name) {
    const std::size_t length = (groups_.empty() ? 0 : groups_.back().size()) + name.size();
    if (length > kMostPath) {
      fail(scanner_.scalar().start, fmt::format("\"{}\": no key is that long", shown(name)),
           "docs/config.md lists all keys");
    }
    key_ = name;
    key_where_ = places_.at(scanner_.scalar().start);
    const auto [first, is_new] = seen_.emplace(path(), key_where_);
    if (!is_new) {
      throw InputError(ExitCode::usage, key_where_,
                       fmt::format("\"{}\" is given twice, first at {}", path(), first->second),
                       "remove one of them");
    }
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& error) {
    const std::string message = error.what();
    if (says(message, "out_of_range")) {
      fail(scanner_.scalar().start, path() + ": the number is too large", "give a finite number");
    }
    const Scanner::Token refused = refused_token(scanner_, message);
    const Problem problem = explain_syntax(scanner_, refused, message);
    fail(refused.start, problem.what, problem.fix);
  }

 private:
  [[noreturn]] void fail(std::size_t offset, const std::string& what, const std::string& fix) {
    throw InputError(ExitCode::usage, places_.at(offset), what, fix);
  }
  [[nodiscard]] std::string path() const { return (groups_.empty() ? "" : groups_.back()) + key_; }

  void require_object(std::size_t offset) {
    if (groups_.empty()) fail(offset, "the file must hold one object", kJsonRules);
  }

  bool scalar(Value value) {
    require_object(scanner_.scalar().start);
    entries_.push_back({path(), std::move(value), key_where_, places_.at(scanner_.scalar().start)});
    return true;
  }

  // As written: an integer of 70 bits must not turn into a rounded double before the field has refused it.
  bool number() {
    const std::string_view rest = scanner_.text().substr(scanner_.scalar().start);
    const std::string digits(rest.substr(0, rest.find_first_not_of("+-.0123456789eE")));
    const bool whole = digits.find_first_of(".eE") == std::string::npos;
    return scalar({whole ? Value::Form::integer : Value::Form::real, digits});
  }

  const Scanner& scanner_;
  Places places_;
  std::vector<JsonEntry> entries_;
  std::vector<std::string> groups_;  // the path of each open object with its dot
  std::string key_, key_where_;
  std::map<std::string, std::string> seen_;
};

// The JSON files of the same folder, in the same spelling.
std::vector<std::string> files_beside(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::vector<std::string> names;
  std::error_code ignored;  // no such folder: no files
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
    throw InputError(ExitCode::usage, Places(text, name).at(error.byte()), error.what(), kJsonRules);
  }
  Scanner scanner(text);
  Reader reader(scanner, name);
  nlohmann::json::sax_parse(CountingIterator(&scanner), CountingIterator(nullptr), &reader);
  return reader.take();
}

std::string read_config_file(const std::string& path, const std::string& asked_by) {
  std::error_code absent;
  std::ifstream file;  // opening a pipe would wait for whoever writes it
  if (std::filesystem::is_regular_file(path, absent)) file.open(path, std::ios::binary);
  const bool readable = file.is_open();
  std::string content(readable ? kLimits.bytes + 1 : 0, '\0');  // one more: read_json() refuses it
  file.read(content.data(), static_cast<std::streamsize>(content.size()));
  content.resize(static_cast<std::size_t>(file.gcount()));
  if (!readable || file.bad()) {
    const std::string ours = ours_for(path), near = nearest(path, files_beside(path));  // --strategy zero2
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
