// What `prepare` reads, and where a text's documents end. No torch.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/data/prepare/options.h"

namespace sc::prepare {

/// One file, or the corpus of this repository ("austen").
struct Input {
  Path path;
  Format format;  // never automatic
  [[nodiscard]] bool is_austen() const { return path == "austen"; }
};

/// The files that the inputs of the command line name: a folder is replaced by the .txt files below it, in
/// ascending order of their paths; their format is decided by name and first bytes unless --format says it.
///   Errors  InputError (exit 65): absent, not a file, a folder without .txt files, a .bin that is no token
///           file.
std::vector<Input> find_inputs(FileOps& ops, const Options& options);

/// Articles of a raw WikiText file, whose lines may end in CR LF. A heading " = Title = " between two blank
/// lines begins one; headings of sections have more equal signs. What stands before the first heading belongs
/// to the first article.
std::vector<std::string_view> wikitext_articles(std::string_view text);

/// What stands between the separators; the whole text if `separator` is empty. A line's end in the separator
/// is one in the text, too, where that has CR LF.
std::vector<std::string_view> split_at(std::string_view text, std::string_view separator);

}  // namespace sc::prepare
