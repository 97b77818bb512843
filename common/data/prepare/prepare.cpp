#include "common/data/prepare/prepare.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/base/text.h"
#include "common/data/corpus.h"
#include "common/data/prepare/parquet.h"
#include "common/data/prose.h"
#include "common/data/token_file.h"
#include "common/input/json_parse.h"
#include "common/input/printable.h"
#include "common/input/utf8.h"
#include "common/storage/atomic_dir.h"
#include "common/storage/git_lfs.h"
#include "common/storage/mapped_file.h"

namespace sc::prepare {
namespace {

[[noreturn]] void refuse(const std::string& where, const std::string& what, const std::string& fix) {
  throw InputError(ExitCode::data, where, what, fix);
}

std::int64_t count_documents(std::span<const TokenId> tokens, TokenId end_of_text) {
  std::int64_t count = 0;
  TokenId before = end_of_text;
  for (const TokenId token : tokens) {
    count += before == end_of_text && token != end_of_text ? 1 : 0;
    before = token;
  }
  return count;
}

[[noreturn]] void refuse_column(const nlohmann::json& object, const std::string& column,
                                const std::string& where) {
  constexpr std::size_t kMost = 200;
  std::string names;
  for (const auto& [name, value] : object.items()) {
    if (value.is_string() && names.size() < kMost) names += (names.empty() ? "" : ", ") + shown(name);
  }
  refuse(where, fmt::format("\"{}\" is {}", shown(column), object.contains(column) ? "no text" : "not there"),
         names.empty() ? "--column NAME" : fmt::format("--column NAME; texts are in: {}", names));
}

/// The text in one column of a line of JSON; empty for null.
std::string text_in(std::string_view line, const std::string& column, const std::string& where) {
  constexpr JsonLimits kLimits{.bytes = std::size_t{64} << 20U, .memory = std::size_t{256} << 20U};
  constexpr const char* kFix = "one JSON object a line; or --format text";
  nlohmann::json object;
  try {
    object = parse_json(line, kLimits);
  } catch (const JsonError& error) {
    refuse(fmt::format("{}:{}", where, error.column()), error.what(), kFix);
  }
  if (!object.is_object()) refuse(where, fmt::format("is {}, and no object", object.type_name()), kFix);
  const auto found = object.find(column);
  if (found != object.end() && found->is_null()) return "";
  if (found == object.end() || !found->is_string()) refuse_column(object, column, where);
  return found->get<std::string>();
}

class Reader {
 public:
  Reader(FileOps& ops, const Options& options, const Tokenizer& tokenizer)
      : ops_(ops), options_(options), tokenizer_(tokenizer) {}
  void read(const Input& input) {
    Source source{.path = input.path.string(), .format = input.format};
    const std::size_t begin = result_.tokens.size();
    marks_ = 0;
    if (!options_.separator.empty() && input.format != Format::text)
      refuse(source.path, fmt::format("is {}, which has documents of its own", name_of(input.format)),
             "leave --separator out, or --format text");
    if (input.is_austen()) {
      const Path archive = austen_archive();
      read_content(input, unpack_gzip(read_file(ops_, archive), archive), source);
    } else {
      const MappedFile file(input.path);
      if (file.size().value() == 0) refuse(source.path, "is empty", "leave it out");
      read_content(input, file.text(), source);
    }
    source.notes.push_back(mark_note(marks_, input.path));
    std::erase(source.notes, "");
    const auto added = std::span<const TokenId>(result_.tokens).subspan(begin);
    source.documents = count_documents(added, tokenizer_.end_of_text());
    source.tokens = static_cast<std::int64_t>(added.size());
    result_.sources.push_back(std::move(source));
  }

  Prepared take() { return std::move(result_); }

 private:
  void read_content(const Input& input, std::string_view content, Source& source) {
    source.bytes = Bytes(static_cast<std::int64_t>(content.size()));
    source.sha256 = hex_sha256(content);
    require_no_lfs_pointer(content, input.path);
    switch (input.format) {
      case Format::parquet:
        read_parquet(input.path, options_.column, options_.python,
                     [&](std::string_view text) { add_document(text); });
        return;
      case Format::tokens: {
        const TokenFile file(input.path);
        file.check_sidecar(ops_, tokenizer_.name());
        return add_ids(input, file.tokens());
      }
      case Format::u16:
        if (content.size() % sizeof(TokenId) != 0) {
          refuse(source.path, fmt::format("{} bytes are not a whole number of 2-byte ids", content.size()),
                 "--format text, or give another file");
        }
        // A mapping begins at a page, so the ids in it are aligned.
        return add_ids(input,
                       {reinterpret_cast<const TokenId*>(content.data()), content.size() / sizeof(TokenId)});
      case Format::jsonl:
        return read_lines_of_json(without_bom(content), source);
      default:
        return read_text(input, content, source);
    }
  }

  void read_text(const Input& input, std::string_view content, Source& source) {
    require_text(content, input.path, options_.format != Format::automatic);
    const std::string_view text = without_bom(content);
    source.notes.push_back(crlf_note(text, input.path));
    for (std::size_t at = 0; at < text.size();) {
      const Utf8Char c = first_utf8(text.substr(at));
      if (c.state != Utf8Char::State::complete) {
        if (source.wrong_bytes == 0) source.first_wrong_byte = static_cast<std::int64_t>(at);
        source.wrong_bytes += c.length;
      }
      at += c.length;
    }
    if (input.format == Format::wikitext) {
      const std::vector<std::string_view> articles = wikitext_articles(text);
      if (articles.size() < 2)
        source.notes.emplace_back(
            "fewer than two headings \" = Title = \" between blank lines: it is one document; is it "
            "WikiText?");
      for (const std::string_view article : articles) add_document(article);
    } else {
      const std::vector<std::string_view> documents = split_at(text, options_.separator);
      if (documents.size() < 2 && !options_.separator.empty())
        source.notes.emplace_back("the separator stands nowhere in it: it is one document");
      for (const std::string_view document : documents)  // a line end follows the last separator
        if (options_.separator.empty() || !is_blank(document)) add_document(document);
    }
  }

  void read_lines_of_json(std::string_view text, const Source& source) {
    for (std::int64_t number = 1; !text.empty(); ++number) {
      const std::string_view line = take_line(text);
      if (!is_blank(line))
        add_document(text_in(line, options_.column, fmt::format("{}:{}", source.path, number)));
    }
  }

  void add_document(std::string_view text) {
    if (text.empty()) return;
    marks_ += count_of(kEndMark, text);
    std::vector<TokenId>& tokens = result_.tokens;
    if (!tokens.empty() && tokens.back() != tokenizer_.end_of_text())
      tokens.push_back(tokenizer_.end_of_text());
    const std::vector<TokenId> ids = tokenizer_.encode(text);
    tokens.insert(tokens.end(), ids.begin(), ids.end());
  }

  void add_ids(const Input& input, std::span<const TokenId> ids) {
    const auto bad =
        std::find_if(ids.begin(), ids.end(), [&](TokenId id) { return id >= tokenizer_.vocab(); });
    if (bad != ids.end()) {
      refuse(input.path.string(),
             fmt::format("token {} is {}, but {} has {} ids", human_count(bad - ids.begin()), *bad,
                         tokenizer_.name(), human_count(tokenizer_.vocab())),
             tokenizer_.name() == "byte" ? "--tokenizer gpt2" : "give tokens of GPT-2's vocabulary");
    }
    if (ids.empty()) return;
    std::vector<TokenId>& tokens = result_.tokens;
    const TokenId end = tokenizer_.end_of_text();
    if (!tokens.empty() && tokens.back() != end && ids.front() != end) tokens.push_back(end);
    tokens.insert(tokens.end(), ids.begin(), ids.end());
  }

  FileOps& ops_;
  const Options& options_;
  const Tokenizer& tokenizer_;
  Prepared result_;
  std::int64_t marks_ = 0;  // in the texts of one input
};

void refuse_existing(FileOps& ops, const Options& options) {
  if (ops.kind(options.out, FileIntent::write) == PathKind::absent || options.replace) return;
  throw InputError(ExitCode::cannot_write, options.out.string(), "is there already",
                   "--replace, or another --out");
}

void report(std::ostream& log, const Source& source) {
  for (const std::string& note : source.notes)
    log << printable(fmt::format("note: {}: {}\n", source.path, note));
  log << fmt::format("{}: {}, {}, {} document{}, {} tokens\n", printable(source.path), name_of(source.format),
                     human_bytes(source.bytes), human_count(source.documents),
                     source.documents == 1 ? "" : "s", human_count(source.tokens));
  if (source.wrong_bytes > 0) {
    log << fmt::format("  note: {} bytes are not UTF-8, the first is byte {}; their tokens give them back\n",
                       human_count(source.wrong_bytes), human_count(source.first_wrong_byte));
  }
}

}  // namespace

Prepared tokenize(FileOps& ops, const Options& options, const Tokenizer& tokenizer) {
  Reader reader(ops, options, tokenizer);
  for (const Input& input : find_inputs(ops, options)) reader.read(input);
  Prepared prepared = reader.take();
  if (prepared.tokens.empty()) refuse(options.inputs.front(), "holds no text", "give a text");
  return prepared;
}

std::string sidecar(const Options& options, const Tokenizer& tokenizer, const Prepared& prepared) {
  const auto bytes = std::as_bytes(std::span(prepared.tokens));
  auto json = nlohmann::ordered_json::parse(sidecar_text(prepared.tokens, tokenizer.name()));
  json["tokens_sha256"] = hex_sha256({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  json["vocabulary"] = tokenizer.vocab();
  json["end_of_text"] = tokenizer.end_of_text();
  json["documents"] = count_documents(prepared.tokens, tokenizer.end_of_text());
  json["licence"] = options.licence;
  json["command"] = options.command;
  for (const Source& source : prepared.sources) {
    json["sources"].push_back({{"path", source.path},
                               {"format", name_of(source.format)},
                               {"bytes", source.bytes.value()},
                               {"sha256", source.sha256},
                               {"documents", source.documents},
                               {"tokens", source.tokens},
                               {"bytes_not_utf8", source.wrong_bytes}});
  }
  constexpr int kIndent = 2;
  // Paths and flags may hold any bytes, so invalid UTF-8 is replaced.
  return json.dump(kIndent, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void run(FileOps& ops, const Options& options, std::ostream& log) {
  const Path beside = sidecar_of(options.out);
  for (const Path& written : {options.out, beside}) require_replaceable(ops, written);
  refuse_existing(ops, options);
  const auto tokenizer = make_tokenizer(options.tokenizer);
  const Prepared prepared = tokenize(ops, options, *tokenizer);
  for (const Source& source : prepared.sources) report(log, source);
  write_token_file(ops, options.out, prepared.tokens);
  atomic_write_file(ops, beside, sidecar(options, *tokenizer, prepared));
  log << fmt::format("wrote {}: {} tokens of {} (vocabulary {}), and {}\n", printable(options.out.string()),
                     human_count(static_cast<std::int64_t>(prepared.tokens.size())), tokenizer->name(),
                     human_count(tokenizer->vocab()), printable(beside.string()));
}

}  // namespace sc::prepare
