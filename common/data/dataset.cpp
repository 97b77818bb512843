#include "common/data/dataset.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "common/base/text.h"
#include "common/data/corpus.h"
#include "common/data/prose.h"
#include "common/storage/atomic_dir.h"
#include "common/storage/mapped_file.h"

namespace sc {
namespace {

std::vector<TokenId> encode_documents(std::string_view text, const Tokenizer& tokenizer) {
  std::vector<TokenId> tokens;
  for (const std::string_view paragraph : paragraphs(text)) {
    const std::vector<TokenId> ids = tokenizer.encode(paragraph);
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    tokens.push_back(tokenizer.end_of_text());
  }
  return tokens;
}

// Refuses a file pattern such as "*.txt": only a shell expands patterns, and a run has one file.
void refuse_pattern(FileOps& ops, const Path& source) {
  if (ops.kind(source) != PathKind::absent || source.string().find_first_of("*?[") == std::string::npos)
    return;
  throw InputError(ExitCode::data, source.string(), "is a pattern, and a run reads one file",
                   fmt::format("one file of all that match: prepare {} --out all.bin, then --data all.bin",
                               source.string()));
}

bool is_token_file(const MappedFile& file) {
  return file.path().extension() == ".bin" || looks_like_token_file(file.text());
}

/// Opens the token file of a source; makes it first if the source is text.
TokenFile open_tokens(FileOps& ops, const std::string& named, const Workload& workload,
                      const Path& cache) try {
  const DataConfig& data = workload.data;
  const Path source = named == "austen" ? austen_text(ops, cache) : Path(named);
  refuse_pattern(ops, source);
  const bool given = is_token_file(MappedFile(source));
  TokenFile file(given ? source
                       : tokenize_once(ops, source, *make_tokenizer(data.tokenizer), data.packing, cache));
  file.check_tokens(workload.model.vocab);
  if (given) file.check_sidecar(ops, data.tokenizer);
  return file;
} catch (const InputError& error) {
  if (error.code() != ExitCode::cannot_write) throw;
  throw InputError(error.code(), error.where(), error.message(),
                   error.fix() + "; STAGECRAFT_CACHE=DIR keeps what is made of a text elsewhere");
}

bool is_sound(FileOps& ops, const Path& cached, std::string_view tokenizer) {
  try {
    return read_file(ops, sidecar_of(cached)) == sidecar_text(TokenFile(cached).tokens(), tokenizer);
  } catch (const InputError&) {
    return false;
  }
}

// Remarks for the user about a text; none for a token file.
std::vector<std::string> notes_of(const std::string& named) {
  if (named == "austen") return {};
  const MappedFile file(named);
  if (is_token_file(file)) return {};
  return {crlf_note(file.text(), named), mark_note(count_of(kEndMark, file.text()), named)};
}

std::string unread_note(const Rows& rows) {
  const bool packed = rows.format().packing == Packing::pack;
  return fmt::format("{} of {} tokens are in no row: {} {} (batch.sequence)", human_count(rows.unread()),
                     human_count(rows.num_tokens()),
                     packed ? "the last ones do not fill" : "documents are cut to", rows.format().sequence);
}

RowFormat format_of(const Workload& workload) {
  const bool packed = workload.data.packing == Packing::pack;
  return {.packing = workload.data.packing,
          .sequence = workload.batch.sequence,
          .end_of_text = packed ? TokenId{0} : end_of_text_of(workload.data.tokenizer)};
}

std::string count_of(const char* part, const Rows& rows) {
  if (rows.format().packing != Packing::pack) {
    return fmt::format("{} has {} tokens in {} documents", part, human_count(rows.num_tokens()),
                       human_count(rows.count()));
  }
  return fmt::format("{} has {} tokens, {} rows of {}", part, human_count(rows.num_tokens()),
                     human_count(rows.count()), rows.format().sequence);
}

void check_training(const Rows& rows, const std::string& source) {
  if (rows.count() > 0) return;
  const std::int64_t sequence = rows.format().sequence;
  const bool packed = rows.format().packing == Packing::pack;
  throw InputError(
      ExitCode::data, source,
      fmt::format("{}; needed: {}", count_of("the training part", rows),
                  packed ? fmt::format("one row, {} tokens", human_count(sequence + 1)) : "one document"),
      packed ? "give a longer text or a smaller batch.sequence" : "give a text with at least one paragraph");
}

// Checks that validation has enough rows: the tail of `all_tokens` tokens, or (0) a file of its own.
void check_validation(const Rows& rows, const Workload& workload, std::int64_t all_tokens,
                      const std::string& source) {
  const DataConfig& data = workload.data;
  const std::int64_t needed = data.validation_rows;
  if (rows.count() >= needed) return;
  std::string fix = "give a longer text";
  if (rows.format().packing == Packing::pack && all_tokens > 0) {
    constexpr double kPercent = 100, kLargestProposal = 0.5;
    const auto tokens = static_cast<double>(needed * rows.format().sequence + 1);
    const double fraction = std::ceil(kPercent * tokens / static_cast<double>(all_tokens)) / kPercent;
    if (fraction <= kLargestProposal)
      fix += fmt::format(", or --set data.validation_fraction={:.2f}", fraction);
  }
  if (rows.count() > 0) fix += fmt::format(", or --set data.validation_rows={}", rows.count());
  throw InputError(ExitCode::data, source,
                   fmt::format("{}; needed: {} (data.validation_rows)", count_of("the validation part", rows),
                               human_count(needed)),
                   fix);
}

}  // namespace

std::vector<std::string_view> paragraphs(std::string_view text) {
  std::vector<std::string_view> found;
  bool within = false;  // inside a paragraph
  while (!text.empty()) {
    const std::string_view line = take_line(text);
    const bool blank = is_blank(line);
    if (!blank && !within) found.push_back(line);
    if (!blank) found.back() = {found.back().begin(), line.end()};
    within = !blank;
  }
  return found;
}

Path tokenize_once(FileOps& ops, const Path& text, const Tokenizer& tokenizer, Packing packing,
                   const Path& cache) {
  const MappedFile file(text);
  require_text(file.text(), text, /*as_text=*/false,
               fmt::format(" --tokenizer {}", tokenizer.name()));  // named, because prepare's default is gpt2
  const std::string_view content = without_bom(file.text());
  constexpr std::size_t kKeyDigits = 16;
  const bool stream = packing == Packing::pack;
  // The last number is the version of encode() and paragraphs(); raise it when they make other tokens.
  Path path = cache / fmt::format("{}-{}-{}-2.bin", hex_sha256(content).substr(0, kKeyDigits),
                                  tokenizer.name(), stream ? "stream" : "documents");
  if (is_sound(ops, path, tokenizer.name())) return path;
  const auto tokens = stream ? tokenizer.encode(content) : encode_documents(content, tokenizer);
  write_token_file(ops, path, tokens);
  atomic_write_file(ops, sidecar_of(path), sidecar_text(tokens, tokenizer.name()));
  return path;
}

RowOrder row_order(const Workload& workload, std::int64_t all) {
  const auto held_out =
      static_cast<std::int64_t>(std::floor(static_cast<double>(all) * workload.data.validation_fraction));
  return {.format = format_of(workload), .tokens = all - held_out, .seed = workload.seed};
}

Dataset Dataset::open(FileOps& ops, const Workload& workload, const Path& cache,
                      const std::string& validation) {
  TokenFile file = open_tokens(ops, workload.data.source, workload, cache);
  std::optional<TokenFile> own;
  if (!validation.empty()) own = open_tokens(ops, validation, workload, cache);
  Dataset data(std::move(file), std::move(own), workload,
               validation.empty() ? workload.data.source : validation);
  data.notes_ = notes_of(workload.data.source);
  if (!validation.empty() && validation != workload.data.source)
    std::ranges::copy(notes_of(validation), std::back_inserter(data.notes_));
  // Up to a hundredth unread is only the end of a long text, and no reason to warn.
  const Rows& rows = data.train();
  if (rows.unread() > rows.num_tokens() / 100) data.notes_.push_back(unread_note(rows));
  if (const std::int64_t all = workload.batch.global; rows.count() < all)
    data.notes_.push_back(fmt::format("a step takes {} rows of {}: each comes up to {} times in it", all,
                                      rows.count(), ceil_div(all, rows.count())));
  return data;
}

Dataset::Dataset(TokenFile file, std::optional<TokenFile> validation, const Workload& workload,
                 const std::string& validation_source)
    : file_(std::move(file)), validation_file_(std::move(validation)) {
  const RowOrder order = row_order(workload, num_tokens());
  const auto trained_on = static_cast<std::size_t>(order.tokens);
  train_ = Rows(file_.tokens().first(trained_on), order.format);
  validation_ =
      Rows(validation_file_ ? validation_file_->tokens() : file_.tokens().subspan(trained_on), order.format);
  check_training(train_, workload.data.source);
  if (validation_file_ || workload.data.validation_fraction > 0)
    check_validation(validation_, workload, validation_file_ ? 0 : num_tokens(), validation_source);
}

TestSet::TestSet(FileOps& ops, const std::string& source, const Workload& workload, const Path& cache)
    : file_(open_tokens(ops, source, workload, cache)),
      rows_(file_.tokens(), format_of(workload)),
      notes_(notes_of(source)) {
  if (rows_.unread() > 0) notes_.push_back(fmt::format("--test {}: {}", source, unread_note(rows_)));
  if (rows_.count() > 0) return;
  throw InputError(ExitCode::data, source,
                   fmt::format("{}; needed: one row, {} tokens", count_of("the test text", rows_),
                               human_count(workload.batch.sequence + 1)),
                   "give a longer text or a smaller batch.sequence");
}

}  // namespace sc
