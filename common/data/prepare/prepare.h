// Inputs -> tokens -> a token file and its sidecar. No torch.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "common/data/prepare/inputs.h"
#include "common/data/tokenizer.h"

namespace sc::prepare {

/// What became of one input.
struct Source {
  std::string path;
  Format format = Format::text;
  Bytes bytes{0};
  std::string sha256 = {};
  std::int64_t documents = 0;                           // without empty ones
  std::int64_t tokens = 0;                              // end-of-text among them
  std::int64_t wrong_bytes = 0, first_wrong_byte = -1;  // not UTF-8; text and wikitext only
  std::vector<std::string> notes = {};                  // what its reader should know
};

struct Prepared {
  std::vector<TokenId> tokens;
  std::vector<Source> sources;
};

/// Reads and tokenises all inputs. End-of-text stands between documents, not after the last: the tokens of
/// one text without a separator are those that --data makes of it. Tokens of a token file stay as they are.
///   Errors  InputError with the input: exit 65 if it is not what its format says (no text, a zero byte, an
///           id beyond the vocabulary, ...), exit 69 if something that reads it is not installed.
Prepared tokenize(FileOps& ops, const Options& options, const Tokenizer& tokenizer);

/// The sidecar: one JSON object.
std::string sidecar(const Options& options, const Tokenizer& tokenizer, const Prepared& prepared);

/// All of `prepare`: tokenises, writes options.out and <out>.json, each complete or not at all, and tells
/// `log` about it.
///   Errors  those of tokenize(); exit 73 if the file is there already and --replace is not given, or if it
///           cannot be written.
void run(FileOps& ops, const Options& options, std::ostream& log);

}  // namespace sc::prepare
