// The default text: six novels by Jane Austen (corpus/SOURCE.md). No torch.
#pragma once

#include <string>
#include <string_view>

#include "common/storage/file_ops.h"

namespace sc {

Path austen_archive();
inline constexpr std::string_view kAustenSha256 =
    "f2516f2139e3cecf49657122fed58ac46313f1fdff32a26fc66789293e92d573";

/// Unpacks a gzip file in memory.
///   Errors  InputError (exit 65): not gzip, cut off, or damaged.
std::string unpack_gzip(std::string_view packed, const Path& path);

/// Unpacks the corpus to a file in `cache` and returns its path. The file is written on first use, completely
/// or not at all, by any number of processes at the same time, and again if its hash is not kAustenSha256.
///   Errors  InputError: exit 65 if the archive is damaged, exit 73 if `cache` cannot be written.
Path austen_text(FileOps& ops, const Path& cache);

}  // namespace sc
