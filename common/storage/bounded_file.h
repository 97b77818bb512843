// Reads files from elsewhere, whole or by lines, in bounded memory. No torch.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "common/storage/file_ops.h"

namespace sc {

/// The content of a whole file.
///   Errors  InputError (exit 65)before reading if it has more than `most` bytes; those of FileOps.
std::string read_file_up_to(FileOps& ops, const Path& path, std::size_t most);

/// Calls f(line, number) for every line without its line break, reading the file in pieces. Numbers begin at
/// 1. Text after the last line break is a line that is still being written, and is skipped.
///   Errors  InputError (exit 65) naming the line that has more than `most` bytes; those of FileOps.
void for_each_line(FileOps& ops, const Path& path, std::size_t most,
                   const std::function<void(std::string_view line, std::int64_t number)>& f);

}  // namespace sc
