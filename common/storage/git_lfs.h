// Files that Git LFS keeps elsewhere: what a clone without it has in their place. No torch.
#pragma once

#include <string_view>

#include "common/storage/file_ops.h"

namespace sc {

/// That `content`, of the file `path` or its beginning, is not the few lines that stand for a file of Git
/// LFS.
///   Errors  InputError (exit 65) with the size of the file that they stand for.
void require_no_lfs_pointer(std::string_view content, const Path& path);

}  // namespace sc
