// Pointer files of Git LFS: what a clone without it has in place of the real files. No torch.
#pragma once

#include <string_view>

#include "common/storage/file_ops.h"

namespace sc {

/// Checks that `content`, the file `path` or its beginning, is not a pointer file of Git LFS.
///   Errors  InputError (exit 65) with the size of the real file.
void require_no_lfs_pointer(std::string_view content, const Path& path);

}  // namespace sc
