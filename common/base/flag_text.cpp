#include "common/base/flag_text.h"

#include "common/base/check.h"
#include "common/base/text.h"

namespace sc {

void refuse_flag(const std::string& word, const std::vector<std::string>& flags, const std::string& fix) {
  const std::string near = nearest(word.substr(0, word.find('=')), flags);
  throw InputError(ExitCode::usage, word,
                   "there is no such flag" + (near.empty() ? "" : "; did you mean " + near + "?"), fix);
}

}  // namespace sc
