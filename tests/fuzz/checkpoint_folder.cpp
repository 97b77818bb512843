// Fuzzes a checkpoint as a folder. The input is three parts separated by lines "====": the manifest without
// its sum, and the headers of two ranks' files, whose values are zeros. Its first byte says which sums are
// made right again ('1' headers, '2' blocks, '4' sizes; '7' all of them), as anybody can who damages a
// checkpoint. A checkpoint that opens must be readable in all that it claims to hold.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "common/storage/checkpoint/generations.h"
#include "common/storage/checkpoint/reader.h"
#include "common/storage/safetensors_header.h"
#include "tests/fuzz/support.h"

namespace sc::fuzz {
namespace {

using namespace sc::checkpoint;  // NOLINT

constexpr std::int64_t kMostValues = 1 << 16;

std::vector<std::string> parts_of(std::string_view input) {
  constexpr std::string_view kLine = "====\n";
  std::vector<std::string> parts;
  for (std::size_t end = 0; end != std::string_view::npos;
       input.remove_prefix(std::min(end + kLine.size(), input.size()))) {
    end = input.find(kLine);
    parts.emplace_back(input.substr(0, end));
  }
  return parts;
}

std::string summed(const std::string& rest) {
  return "{\"xxh3\": \"" + hex_of(sum_of(as_bytes(rest))) + "\",\n" + rest;
}

std::vector<std::uint64_t> block_sums(const std::string& json, std::int64_t data) {
  std::vector<std::uint64_t> sums;
  try {
    for (const SafeTensor& tensor : parse_safetensors_header(json, data, "header").tensors) {
      if (tensor.begin < tensor.end)
        sums.push_back(sum_of(std::vector<std::byte>(static_cast<std::size_t>(tensor.end - tensor.begin))));
    }
  } catch (const InputError&) {  // the reader will say so
  }
  return sums;
}

// Writes the rank's file whose header is `json`, and makes right the sums that `mend` names.
void write_rank(const Path& dir, const std::string& json, FileSums& sums, int mend) {
  const std::uint64_t length = json.size();
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  file += json;
  std::int64_t data = 0;
  if (__builtin_sub_overflow(sums.bytes, sums.header_bytes, &data) || data < 0 || data > kMostValues)
    data = 0;
  if ((mend & 1) != 0) sums.header_sum = sum_of(as_bytes(file));
  if ((mend & 2) != 0) sums.block_sums = block_sums(json, data);
  if ((mend & 4) != 0) sums.header_bytes = static_cast<std::int64_t>(file.size());
  file.resize(file.size() + static_cast<std::size_t>(data));
  if ((mend & 4) != 0) sums.bytes = static_cast<std::int64_t>(file.size());
  file_of(file, dir.filename().string() + "/" + sums.name);
}

void read_all(FileOps& ops, const Path& dir) {
  auto reader = taken([&] { return Reader(ops, dir); });
  if (!reader) return;
  (void)reader->weights();
  for (const Key& key : reader->keys()) {
    if (key.purpose == kInFlight) continue;
    const std::int64_t numel = reader->numel(key.tensor);
    if (numel > kMostValues) continue;
    std::vector<std::byte> values(static_cast<std::size_t>(numel * size_of(reader->dtype(key))),
                                  std::byte{1});
    const auto read = taken([&] {
      reader->read(key, {0, numel}, values);
      return true;
    });
    require(!read || std::ranges::all_of(values, [](std::byte byte) { return byte == std::byte{}; }),
            "values that no file holds");
  }
  taken([&] {
    reader->verify();
    return true;
  });
}

}  // namespace
}  // namespace sc::fuzz

SC_FUZZ_TARGET(checkpoint_folder) {
  static const auto ops = sc::posix_file_ops(sc::Syncing::skip);
  static const bool made = ops->make_dir(folder() / "step-000002");
  require(made, "no folder for the checkpoint");
  const sc::Path dir = folder() / "step-000002";
  for (const std::string& name : ops->list(dir)) ops->remove(dir / name);
  const std::vector<std::string> parts = parts_of(text_of(data, size));
  const int mend = parts[0].empty() ? 0 : parts[0][0] & 7;
  std::string manifest = summed(parts[0].empty() ? "" : parts[0].substr(1));
  if (auto read = taken([&] { return manifest_of_text(manifest, "M"); })) {
    for (std::size_t rank = 0; rank < read->files.size() && rank + 1 < parts.size(); ++rank)
      write_rank(dir, parts[rank + 1], read->files[rank], mend);
    manifest = sc::checkpoint::text_of(*read);
  }
  file_of(manifest, "step-000002/manifest.json");
  read_all(*ops, dir);
  (void)newest_whole(*ops, folder());
  return 0;
}
