// Reads texts from parquet files. Parquet needs a large library, so a small Python program (parquet_text.py,
// with pyarrow from setup_parquet.sh) reads the file and writes the texts to a pipe. No torch.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/storage/file_ops.h"

namespace sc::prepare {

using UseDocument = std::function<void(std::string_view)>;

/// The Python interpreter that setup_parquet.sh installs, in the source tree.
Path default_python();

/// Passes every text of the column to `use`, in the order of the rows; rows without a value are left out.
///   Errors  InputError: exit 69 if the interpreter or pyarrow is not installed; exit 65 if the file is not
///           parquet, has no such column, or the column holds no text.
void read_parquet(const Path& file, const std::string& column, const Path& python, const UseDocument& use);

/// Runs a program without a shell and reads frames from its standard output:
///   'D' + length + a document
///   'E' + length + "what\nfix", which becomes an InputError (exit 65)
///   'M' + the same for something that is missing (exit 69)
///   'Z' + zero, the end
/// A length is 8 bytes, little-endian. Messages call the input `where`.
///   Errors  InputError: exit 69 if the program cannot be started, exit 65 if the frames are cut off.
void read_frames(const std::vector<std::string>& command, const std::string& where, const UseDocument& use);

}  // namespace sc::prepare
