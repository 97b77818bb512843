#include "common/storage/git_lfs.h"

#include <spdlog/fmt/fmt.h>

#include <charconv>

#include "common/base/text.h"

namespace sc {

// A pointer file (github.com/git-lfs/git-lfs, docs/spec.md)has lines "key value", `version` first.
void require_no_lfs_pointer(std::string_view content, const Path& path) {
  constexpr std::string_view kFirst = "version https://git-lfs.github.com/spec/", kSize = "\nsize ";
  if (!content.starts_with(kFirst)) return;
  std::string size;
  if (const std::size_t at = content.find(kSize); at != std::string_view::npos) {
    const std::string_view digits = content.substr(at + kSize.size());
    std::int64_t bytes = 0;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), bytes).ec == std::errc())
      size = fmt::format(", which has {} bytes", human_count(bytes));
  }
  throw InputError(ExitCode::data, path.string(),
                   fmt::format("is a pointer of Git LFS and not the file itself{}", size),
                   "git lfs pull, in the clone that it lies in; or download the file");
}

}  // namespace sc
