// Files from elsewhere, read whole or by lines without taking more memory than their kind needs. No torch.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "common/storage/file_ops.h"

namespace sc {

/// The whole file.
///   Errors  InputError (exit 65) before anything is read if it has more than `most` bytes; those of FileOps.
std::string read_file_up_to(FileOps& ops, const Path& path, std::size_t most);

/// Calls f(line, number) for every line that ends in a line break, without it, in pieces of the file. Numbers
/// begin at 1. What stands behind the last break, a line that is being written, is no line.
///   Errors  InputError (exit 65) naming the line that has more than `most` bytes; those of FileOps.
void for_each_line(FileOps& ops, const Path& path, std::size_t most,
                   const std::function<void(std::string_view line, std::int64_t number)>& f);

}  // namespace sc
