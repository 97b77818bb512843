#include "common/data/prepare/options.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>

#include "common/base/command_words.h"
#include "common/base/flag_text.h"
#include "common/base/text.h"
#include "common/data/prepare/parquet.h"

namespace sc::prepare {
namespace {

constexpr std::array<std::string_view, 7> kFormats = {"auto",   "text", "wikitext", "jsonl",
                                                      "tokens", "u16",  "parquet"};

struct Flag {
  const char* name;
  const char* argument;  // empty for a switch
  const char* doc;
};
constexpr std::array<Flag, 9> kFlags = {{
    {"out", "FILE.bin", "the token file to write"},
    {"tokenizer", "NAME", "gpt2 (default) or byte"},
    {"format", "KIND",
     "auto (default), text (whatever it looks like), wikitext,\n"
     "jsonl (an object a line), tokens (llm.c's files), u16 (bare\n"
     "2-byte ids, as nanoGPT writes them) or parquet"},
    {"separator", "TEXT", "ends a document within a text, e.g. '<|endoftext|>'; is not tokenised"},
    {"column", "NAME", "jsonl, parquet: what holds the texts (default: text)"},
    {"licence", "LINE", "a line about licence and authors, kept in the sidecar"},
    {"replace", "", "overwrite FILE.bin"},
    {"python", "PATH", "parquet: an interpreter that has pyarrow (default: .deps/prepare's)"},
    {"help", "", "this text"},
}};

constexpr const char* kHead = R"(Turns text into a file of tokens that every lesson reads: --data FILE.bin

usage: prepare INPUT... --out FILE.bin [flags]

INPUT is a text file, a folder (all .txt files below it, in the order of their paths), a raw file of WikiText,
lines of JSON, a file of tokens, a parquet file, or the word austen: the six novels that this repository carries.
Several become one file; a byte order mark is dropped. End-of-text stands between documents. Beside FILE.bin, FILE.bin.json says where the tokens come from.

)";

constexpr const char* kTail = R"(
examples:
  prepare notes/ --out notes.bin --licence "CC BY 4.0, by the authors of notes"
  prepare chats.jsonl --column text --out chats.bin
  prepare shard_*.bin --format u16 --out all.bin
  prepare wiki.train.raw --out wiki_train.bin --licence "CC BY-SA 3.0, Wikipedia's contributors"

exit codes: 0, 64 command line, 65 an input is not what it must be, 69 something is not installed,
73 the output cannot be written
)";

[[noreturn]] void refuse_usage(const std::string& where, const std::string& what, const std::string& fix) {
  throw InputError(ExitCode::usage, where, what, fix);
}

constexpr const char* kHelpFix = "prepare --help";

std::vector<std::string> read_inputs(const std::vector<std::string>& words) {
  std::vector<std::string> names;
  for (const Flag& flag : kFlags) names.push_back(std::string("--") + flag.name);
  for (const std::string& word : words) {
    if (word.empty()) refuse_usage("command line", "an input is empty", "prepare my.txt --out my.bin");
    if (word[0] == '-') refuse_flag(word, names, kHelpFix);
  }
  if (words.empty()) refuse_usage("command line", "no input", "prepare my.txt --out my.bin");
  return words;
}

std::string argument(const std::vector<Given>& flags, const std::string& name, std::string otherwise) {
  const auto given = std::ranges::find(flags, name, &Given::name);
  if (given == flags.end()) return otherwise;
  if (std::ranges::count(flags, name, &Given::name) > 1)
    refuse_usage("--" + name, "given twice", "give it once");
  if (given->value.empty()) refuse_usage("--" + name, "its argument is empty", kHelpFix);
  return given->value;
}

Format format_of(const std::string& name) {
  for (std::size_t i = 0; i < kFormats.size(); ++i) {
    if (name == kFormats[i]) return static_cast<Format>(i);
  }
  const std::string near = nearest(name, {kFormats.begin(), kFormats.end()});
  refuse_usage("--format " + name, "not a format", near.empty() ? kHelpFix : "--format " + near);
}

/// The separator as typed, with "\\n" (which most shells do not expand) made a line end. CR is removed, so
/// that a line end is the same on every system.
std::string separator_of(const std::string& given) {
  std::string text;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const char next = i + 1 < given.size() ? given[i + 1] : '\0';
    if (given[i] == '\\' && (next == 'n' || next == 't' || next == 'r')) {
      if (next != 'r') text += next == 'n' ? '\n' : '\t';
      ++i;
    } else if (given[i] != '\r') {
      text += given[i];
    }
  }
  if (text.empty() && !given.empty()) refuse_usage("--separator", "it is a CR alone", "--separator '\\n'");
  return text;
}

/// A word as a shell needs it: quoted if it holds a character that is special to shells.
std::string shell_word(const std::string& word) {
  constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./=,:+@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted += "'";
}

std::string command_line(int argc, const char* const* argv) {
  std::string line = "prepare";
  for (int i = 1; i < argc; ++i) line += " " + shell_word(argv[i]);
  return line;
}

}  // namespace

std::string_view name_of(Format format) { return kFormats.at(static_cast<std::size_t>(format)); }

std::optional<Options> parse_options(int argc, const char* const* argv) {
  std::vector<std::pair<std::string, bool>> names;
  for (const Flag& flag : kFlags) names.emplace_back(flag.name, *flag.argument == '\0');
  const auto [given, words] = command_words(argc, argv, names, kHelpFix);
  if (std::ranges::count(given, "help", &Given::name) > 0) return std::nullopt;
  Options options;
  options.inputs = read_inputs(words);
  options.out = argument(given, "out", "");
  if (options.out.empty()) refuse_usage("command line", "--out is missing", "--out FILE.bin");
  options.tokenizer = argument(given, "tokenizer", options.tokenizer);
  if (options.tokenizer != "gpt2" && options.tokenizer != "byte") {
    refuse_usage("--tokenizer " + options.tokenizer, "not a tokenizer",
                 "--tokenizer gpt2, or --tokenizer byte");
  }
  options.format = format_of(argument(given, "format", "auto"));
  options.separator = separator_of(argument(given, "separator", ""));
  if (!options.separator.empty() && options.format != Format::automatic && options.format != Format::text)
    refuse_usage("--separator", fmt::format("--format {} has documents of its own", name_of(options.format)),
                 "leave it out, or --format text");
  options.column = argument(given, "column", options.column);
  options.licence = argument(given, "licence", options.licence);
  options.python = argument(given, "python", default_python().string());
  options.replace = std::ranges::count(given, "replace", &Given::name) > 0;
  options.command = command_line(argc, argv);
  return options;
}

std::string help_text() {
  constexpr int kColumn = 23;
  std::string text = kHead;
  for (const Flag& flag : kFlags) {
    std::string doc = flag.doc;
    for (std::size_t at = 0; (at = doc.find('\n', at)) != std::string::npos; ++at) {
      doc.insert(at + 1, kColumn + 2, ' ');
    }
    text += fmt::format("  {:<{}}{}\n", fmt::format("--{} {}", flag.name, flag.argument), kColumn, doc);
  }
  return text + kTail;
}

}  // namespace sc::prepare
