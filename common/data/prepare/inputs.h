// The inputs of `prepare`, and where the documents of a text end. No torch.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/data/prepare/options.h"

namespace sc::prepare {

/// One input file with its format.
struct Input {
  Path path;
  Format format;  // never `automatic`
  [[nodiscard]] bool is_austen() const { return path == "austen"; }
};

/// The files named on the command line. A folder is replaced by the .txt files below it, in ascending order
/// of their paths. The format is taken from --format, otherwise from the name and the first bytes.
///   Errors  InputError (exit 65): absent, not a file, a folder without .txt, a .bin that is no token file.
std::vector<Input> find_inputs(FileOps& ops, const Options& options);

/// The articles of a raw WikiText file, whose lines may end in CR LF. A heading " = Title = " between two
/// blank lines begins an article; headings of sections have more equal signs. Text before the first heading
/// belongs to the first article.
std::vector<std::string_view> wikitext_articles(std::string_view text);

/// The texts between separators, or the whole text if `separator` is empty. Its LF also matches CR LF.
std::vector<std::string_view> split_at(std::string_view text, std::string_view separator);

}  // namespace sc::prepare
