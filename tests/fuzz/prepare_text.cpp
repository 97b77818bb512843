// Fuzzes a file that `prepare` is given, read in every format. A text's tokens give it back, and a file of
// tokens that is written reads back equal.
#include <algorithm>
#include <string>

#include "common/data/prepare/prepare.h"
#include "common/data/prose.h"
#include "common/data/token_file.h"
#include "tests/fuzz/support.h"

#ifndef STAGECRAFT_FUZZ_REPLAY
// Replaces options.cpp, whose command line takes longer to compile than everything else here.
std::string_view sc::prepare::name_of(Format /*format*/) { return "a format"; }
#endif

namespace sc::fuzz {
namespace {

using prepare::Format;

std::optional<std::string> read(FileOps& ops, const Path& path, Format format, const std::string& separator) {
  const ByteTokenizer tokenizer;
  prepare::Options options;
  options.inputs = {path};
  options.format = format;
  options.separator = separator;
  options.python = "/nowhere";
  const auto prepared = taken([&] { return prepare::tokenize(ops, options, tokenizer); });
  if (!prepared) return std::nullopt;
  (void)prepare::sidecar(options, tokenizer, *prepared);
  write_token_file(ops, folder() / "tokens.bin", prepared->tokens);
  require(std::ranges::equal(TokenFile(folder() / "tokens.bin").tokens(), prepared->tokens),
          "tokens do not read back equal");
  return tokenizer.decode(prepared->tokens);
}

}  // namespace
}  // namespace sc::fuzz

SC_FUZZ_TARGET(prepare_text) {
  static const auto ops = sc::posix_file_ops(sc::Syncing::skip);
  const std::string content = text_of(data, size);
  const std::string_view text = sc::without_bom(content);
  const sc::Path path = file_of(content);
  for (const Format format : {Format::text, Format::wikitext, Format::automatic}) {
    const auto back = read(*ops, path, format, "");
    require(!back || *back == text || format == Format::automatic, "tokens do not give their text back");
  }
  for (const Format format : {Format::jsonl, Format::tokens, Format::u16}) read(*ops, path, format, "");
  for (const char* separator : {"\n\n", "<|endoftext|>"}) read(*ops, path, Format::text, separator);
  return 0;
}
