// Fuzzes safetensors files. An input that begins with a line of digits is the header of a file, followed by
// so many zeros: its length need not be guessed. What is taken is written, and reads back equal.
#include "common/storage/safetensors.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string>
#include <vector>

#include "common/storage/safetensors_header.h"
#include "tests/fuzz/support.h"

namespace sc::fuzz {
namespace {

constexpr std::size_t kMostData = 1 << 16;

std::string file_for(const std::string& input) {
  std::size_t data = 0;
  const char* const end = std::from_chars(input.data(), input.data() + input.size(), data).ptr;
  if (end == input.data() || *end != '\n') return input;
  const std::string header(end + 1, input.data() + input.size());
  const std::uint64_t length = header.size();
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  return file + header + std::string(std::min(data, kMostData), '\0');
}

bool equal(const SafeTensor& a, const SafeTensor& b) {
  return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape && a.begin == b.begin && a.end == b.end;
}

void write_and_read(const SafetensorsReader& reader) {
  std::vector<SafeTensorSpec> specs;
  std::int64_t data = 0;
  for (const SafeTensor& tensor : reader.tensors()) {
    for (const std::byte byte : reader.bytes(tensor)) data += byte == std::byte{} ? 1 : 1;
    if (!tensor.dtype) return;  // listed, and not computed with
    specs.push_back({tensor.name, *tensor.dtype, tensor.shape});
  }
  const std::string text = safetensors_head(specs, reader.metadata()).substr(sizeof(std::uint64_t));
  const SafetensorsHeader again = parse_safetensors_header(text, data, "written");
  require(std::ranges::equal(again.tensors, reader.tensors(), equal) && again.metadata == reader.metadata(),
          "a header does not read back equal");
}

}  // namespace
}  // namespace sc::fuzz

SC_FUZZ_TARGET(safetensors) {
  const sc::Path path = file_of(file_for(text_of(data, size)));
  if (const auto reader = taken([&] { return sc::SafetensorsReader(path); })) write_and_read(*reader);
  return 0;
}
