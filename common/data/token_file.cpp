#include "common/data/token_file.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "common/base/text.h"
#include "common/input/json_node.h"
#include "common/input/printable.h"
#include "common/storage/atomic_dir.h"
#include "common/storage/checkpoint/sums.h"
#include "common/storage/git_lfs.h"

namespace sc {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

namespace {

using Header = std::array<std::int32_t, kTokenFileHeaderBytes / sizeof(std::int32_t)>;
constexpr std::int32_t kLlama3Magic = 20240801;
constexpr const char* kFormatFix =
    "give a text file, or a 2-byte token file of llm.c (magic 20240520, version 1)";

[[noreturn]] void refuse_tokens(const Path& path, const std::string& what,
                                const std::string& fix = kFormatFix) {
  throw InputError(ExitCode::data, path.string(), what, fix);
}

// The fix for a file without a header: if its size allows, it may hold ids as nanoGPT writes them.
std::string fix_for_bare_ids(const MappedFile& file) {
  if (file.size().value() == 0 || file.size().value() % std::int64_t{sizeof(TokenId)} != 0) return kFormatFix;
  return fmt::format(
      "if it holds bare 2-byte ids (nanoGPT's): prepare {} --format u16 --out TOKENS.bin; otherwise {}",
      file.path().string(), kFormatFix);
}

Header read_header(const MappedFile& file) {
  require_no_lfs_pointer(file.text(), file.path());
  if (file.size().value() < kTokenFileHeaderBytes) {
    refuse_tokens(file.path(),
                  fmt::format("{} bytes; a token file starts with a header of {}", file.size().value(),
                              kTokenFileHeaderBytes),
                  fix_for_bare_ids(file));
  }
  Header header{};
  std::memcpy(header.data(), file.bytes().data(), sizeof(header));
  return header;
}

}  // namespace

void write_token_file(FileOps& ops, const Path& path, std::span<const TokenId> tokens) {
  if (tokens.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    throw InputError(ExitCode::data, path.string(),
                     fmt::format("{} tokens; the format counts at most {}",
                                 human_count(static_cast<std::int64_t>(tokens.size())),
                                 human_count(std::numeric_limits<std::int32_t>::max())),
                     "split the text into several files");
  }
  Header header{};
  header[0] = kTokenFileMagic;
  header[1] = kTokenFileVersion;
  header[2] = static_cast<std::int32_t>(tokens.size());
  atomic_write_file(ops, path, [&](File& file) {
    file.append(std::as_bytes(std::span(header)));
    file.append(std::as_bytes(tokens));
  });
}

Path sidecar_of(const Path& tokens) { return tokens.string() + ".json"; }

std::string sidecar_text(std::span<const TokenId> tokens, std::string_view tokenizer) {
  return fmt::format(R"({{"tokens": {}, "tokens_xxh3": "{:016x}", "tokenizer": "{}"}})", tokens.size(),
                     checkpoint::sum_of(std::as_bytes(tokens)), tokenizer);
}

bool looks_like_token_file(std::string_view content) {
  // llm.c's magic numbers are dates of 2024 (model 20240326, tokens 20240520 and 20240801). Their fourth byte
  // is 0x01, which no text contains.
  constexpr std::int32_t kFirst = 20240101, kLast = 20241231;
  std::int32_t magic = 0;
  if (content.size() < sizeof(magic)) return false;
  std::memcpy(&magic, content.data(), sizeof(magic));
  return magic >= kFirst && magic <= kLast;
}

TokenFile::TokenFile(const Path& path) : file_(path) {
  const Header header = read_header(file_);
  const std::int32_t magic = header[0], version = header[1], count = header[2];
  if (magic != kTokenFileMagic) {
    refuse_tokens(path,
                  fmt::format("magic {} instead of {}{}", magic, kTokenFileMagic,
                              magic == kLlama3Magic ? ": these are llm.c's 4-byte tokens of Llama 3" : ""),
                  looks_like_token_file(file_.text()) ? kFormatFix : fix_for_bare_ids(file_));
  }
  if (version != kTokenFileVersion)
    refuse_tokens(path, fmt::format("version {} instead of {}", version, kTokenFileVersion));
  const std::int64_t wanted = kTokenFileHeaderBytes + std::int64_t{count} * std::int64_t{sizeof(TokenId)};
  if (count < 0 || wanted != file_.size().value()) {
    refuse_tokens(path, fmt::format("the header counts {} tokens, {} bytes in all, but the file has {}",
                                    count, wanted, file_.size().value()));
  }
  // The mapping begins at a page and the header has 1024 bytes, so the tokens are aligned.
  tokens_ = {reinterpret_cast<const TokenId*>(file_.bytes().data() + kTokenFileHeaderBytes),
             static_cast<std::size_t>(count)};
}

void TokenFile::check_tokens(std::int64_t vocab) const {
  constexpr std::size_t kBlock = 1 << 16;  // its maximum is one vector loop; only a bad block is searched
  for (std::size_t begin = 0; begin < tokens_.size(); begin += kBlock) {
    const auto block = tokens_.subspan(begin, std::min(kBlock, tokens_.size() - begin));
    TokenId largest = 0;
    for (const TokenId token : block) largest = std::max(largest, token);
    if (largest < vocab) continue;
    const auto bad = std::find_if(block.begin(), block.end(), [&](TokenId token) { return token >= vocab; });
    throw InputError(
        ExitCode::data, file_.path().string(),
        fmt::format("token {} is {}, but the vocabulary has {} entries",
                    human_count(static_cast<std::int64_t>(begin) + (bad - block.begin())), *bad,
                    human_count(vocab)),
        fmt::format("--set model.vocab={} or more, or give tokens of this vocabulary", *bad + 1));
  }
}

void TokenFile::check_sidecar(FileOps& ops, std::string_view tokenizer) const {
  constexpr JsonLimits kLimits{.bytes = std::size_t{64} << 20U, .memory = std::size_t{256} << 20U};
  constexpr const char* kFix = "prepare the text anew; or remove that .json, if it is another file's";
  const Path beside = sidecar_of(path());
  if (ops.kind(beside) != PathKind::file) return;
  const auto said = of_json<InputError>(read_file(ops, beside), kLimits, beside.string(), ExitCode::data,
                                        kFix, [](const JsonNode& node) { return node.value(); });
  const nlohmann::json here = nlohmann::json::parse(sidecar_text(tokens_, tokenizer));
  for (const std::string key : {"tokens", "tokens_xxh3", "tokenizer"}) {
    if (!said.contains(key) || said[key] == here[key]) continue;
    const std::string there = shown(said[key].dump()), here_is = here[key].dump();
    refuse_tokens(path(),
                  fmt::format("{} says \"{}\": {}, and here it is {}", beside.string(), key, there, here_is),
                  key == "tokenizer" ? "--set data.tokenizer=" + there + " (prepare: --tokenizer)" : kFix);
  }
}

}  // namespace sc
