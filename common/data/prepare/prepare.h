// Turns inputs into a token file and its sidecar. No torch.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "common/data/prepare/inputs.h"
#include "common/data/tokenizer.h"

namespace sc::prepare {

/// One input of `prepare`, with what the token file has from it.
struct Source {
  std::string path;
  Format format = Format::text;
  Bytes bytes{0};
  std::string sha256 = {};
  std::int64_t documents = 0;                           // without empty ones
  std::int64_t tokens = 0;                              // including end-of-text
  std::int64_t wrong_bytes = 0, first_wrong_byte = -1;  // bytes that are not UTF-8; text and wikitext only
  std::vector<std::string> notes = {};                  // remarks for the user
};

struct Prepared {
  std::vector<TokenId> tokens;
  std::vector<Source> sources;
};

/// Reads and tokenizes all inputs. End-of-text stands between documents, not after the last one, so that one
/// text without a separator gives the same tokens as --data. Tokens of a token file are copied.
///   Errors  InputError with the input: exit 65 if it does not have its format (no text, a zero byte, an id
///           beyond the vocabulary, ...), exit 69 if a program that reads it is not installed.
Prepared tokenize(FileOps& ops, const Options& options, const Tokenizer& tokenizer);

/// The text of the token file's sidecar: one JSON object.
std::string sidecar(const Options& options, const Tokenizer& tokenizer, const Prepared& prepared);

/// Runs `prepare`: tokenizes, and writes options.out and <out>.json, each completely or not at all. Reports
/// to `log`.
///   Errors  those of tokenize(); exit 73 if the file exists without --replace, or cannot be written.
void run(FileOps& ops, const Options& options, std::ostream& log);

}  // namespace sc::prepare
