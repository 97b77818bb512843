// The command line of `prepare`. No torch.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/storage/file_ops.h"

namespace sc::prepare {

/// The formats of inputs; `automatic` is decided by content and name.
enum class Format { automatic, text, wikitext, jsonl, tokens, u16, parquet };
std::string_view name_of(Format format);

struct Options {
  std::vector<std::string> inputs;
  Path out;
  std::string tokenizer = "gpt2";
  Format format = Format::automatic;
  std::string separator;  // ends a document within a text; empty: a text is one document
  std::string column = "text";
  std::string licence = "not stated";
  Path python;  // the interpreter that reads parquet
  bool replace = false;
  std::string command;  // as typed, for the sidecar
};

/// Parses the command line of `prepare`; nullopt if help was asked for.
///   Errors  InputError (exit 64).
std::optional<Options> parse_options(int argc, const char* const* argv);
std::string help_text();

}  // namespace sc::prepare
