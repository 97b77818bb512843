// What a checkpoint says about its run: everything but the tensors' values. No torch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/storage/checkpoint/file_writer.h"

namespace sc::checkpoint {

inline constexpr const char* kManifestName = "manifest.json";
/// The largest manifest that is read, in bytes. With 16 digits per block of 1 MiB it allows half a TiB of
/// state, 28 times that of GPT-2 with 1558M parameters.
inline constexpr std::size_t kMostManifestBytes = std::size_t{8} << 20U;

struct LossScaler {
  double scale = 1;
  std::int64_t good_steps = 0, overflows = 0;
  bool operator==(const LossScaler&) const = default;
};

/// Identifies the token file that was trained on: its size, and sum_of() of its content.
struct DataFingerprint {
  std::int64_t bytes = 0;
  std::uint64_t sum = 0;
  bool operator==(const DataFingerprint&) const = default;
};

struct TensorShape {
  std::string name;
  std::vector<std::int64_t> shape;  // as stored here: matrices [out, in], padding rows included
  [[nodiscard]] std::int64_t numel() const;
  bool operator==(const TensorShape&) const = default;
};

struct Manifest {
  std::int64_t step = 0;             // the next step, which is also the number of steps done
  std::int64_t updates = 0;          // updates of the parameters; skipped steps do not count
  std::int64_t tokens_per_step = 0;  // summed over ranks
  // The number of rows done, in the order of rows that the run trains in: the next step begins there.
  std::int64_t rows = 0;
  std::int64_t tokens = 0;  // trained on so far, by this run and those that it resumed from
  LossScaler scaler;
  std::int64_t skips_in_a_row = 0;
  std::string lesson;  // e.g. "04_zero3"
  std::int64_t world = 1;
  std::map<std::string, std::string> workload;  // every key, as text: {"model.vocab", "257"}
  std::string workload_hash;
  std::map<std::string, std::string> strategy;  // the lesson's own keys
  std::string commit;
  std::string arithmetic = {};  // what else the bits of sums depend on: "CPU AVX2, threads 1"
  DataFingerprint data;
  std::vector<TensorShape> tensors;  // of the model, in its order; the files must cover them
  std::string extra = "{}";          // a JSON object with what else the strategy needs (pending work)
  std::vector<FileSums> files;       // rank r's at index r; as many as `world`
  bool operator==(const Manifest&) const = default;
};

/// Runs `read`, which parses `extra` with nlohmann-json and at(). A key that is missing or of the wrong type
/// becomes an InputError (exit 65) naming the manifest in `dir`.
void reading_extra(const Path& dir, const std::function<void()>& read);

/// The pending work of the checkpoint's strategy, in words.
std::string put_off_in(const Manifest& manifest);

/// The content of manifest.json: a JSON object whose first line is the checksum of everything after it.
///   Errors  std::logic_error if `extra` is not a JSON object.
std::string text_of(const Manifest& manifest);
/// Parses a manifest. Without "rows" and "tokens", which older versions did not write, every step had the
/// workload's batch. Without "arithmetic" it stays empty.
///   Errors  InputError (exit 65) naming `where` and the key: another checksum, another format version, a key
///           that is missing or of another type, files that are not those of `world` ranks.
Manifest manifest_of_text(std::string_view text, const std::string& where);

}  // namespace sc::checkpoint
