#include "common/base/flag_text.h"

#include "common/base/check.h"
#include "common/base/text.h"

namespace sc {

std::string ascii_quotes(std::string text) {
  for (const std::string_view quote : {"\xE2\x80\x98", "\xE2\x80\x99"}) {
    for (auto at = text.find(quote); at != std::string::npos; at = text.find(quote))
      text.replace(at, quote.size(), "'");
  }
  return text;
}

void refuse_flag(const std::string& word, const std::vector<std::string>& flags, const std::string& fix) {
  const std::string near = nearest(word.substr(0, word.find('=')), flags);
  throw InputError(ExitCode::usage, word,
                   "there is no such flag" + (near.empty() ? "" : "; did you mean " + near + "?"), fix);
}

}  // namespace sc
