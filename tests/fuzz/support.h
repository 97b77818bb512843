// What all fuzz targets do with an input: a reader accepts it, or refuses it with its own error and does
// nothing else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/check.h"
#include "common/storage/file_ops.h"

/// The head of a target's function of `data` and `size`. A program has one target and libFuzzer's main(), or,
/// in replay.cpp, all targets.
#ifdef STAGECRAFT_FUZZ_REPLAY
#define SC_FUZZ_TARGET(name) int sc::fuzz::name(const std::uint8_t* data, std::size_t size)
#else
#define SC_FUZZ_TARGET(name)                                                          \
  extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) { \
    return sc::fuzz::name(data, size);                                                \
  }                                                                                   \
  int sc::fuzz::name(const std::uint8_t* data, std::size_t size)
#endif

namespace sc::fuzz {

using Target = int(const std::uint8_t* data, std::size_t size);
Target safetensors, manifest, checkpoint_folder, workload, prepare_text, bpe_merges, names, schedule;

/// Ends the process unless `holds`; libFuzzer then keeps the input.
void require(bool holds, const char* what);

/// Count the inputs that were taken and refused; run.sh and replay.cpp want both to occur, and print them at
/// the end.
void count_taken();
void count_refused(std::string_view message);
struct Counts {
  std::int64_t taken = 0, refused = 0;
};
Counts counts();

/// The result of `read`; nullopt if it refuses. Any other exception passes, and is a find.
template <class Refusal = InputError, class Read>
auto taken(Read read) {
  std::optional<decltype(read())> result;
  try {
    result.emplace(read());
    count_taken();
  } catch (const Refusal& refusal) {
    count_refused(refusal.what());
  }
  return result;
}

/// The folder in memory that this process uses.
const Path& folder();
/// Writes a file with the given content into folder().
Path file_of(std::string_view content, const std::string& name = "input");

/// A copy of an input, so that reading past its end is noticed.
inline std::string text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace sc::fuzz
