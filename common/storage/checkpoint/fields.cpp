#include "common/storage/checkpoint/fields.h"

#include "common/storage/checkpoint/manifest.h"

namespace sc::checkpoint {

std::vector<std::uint64_t> sums_of(const JsonNode& node) {
  auto sums = sums_of_hex(node.text());
  if (!sums) node.fail("must be check sums of 16 hexadecimal digits");
  return *std::move(sums);
}

std::uint64_t sum_of(const JsonNode& node) {
  const auto all = sums_of(node);
  if (all.size() != 1) node.fail("must be one check sum");
  return all.front();
}

OrderedJson json_of(const FileSums& sums) {
  return {{"name", sums.name},
          {"bytes", sums.bytes},
          {"header_bytes", sums.header_bytes},
          {"header_sum", hex_of(sums.header_sum)},
          {"block_sums", hex_of(sums.block_sums)}};
}

FileSums file_sums_of(const JsonNode& node) {
  return {.name = node["name"].text(),
          .bytes = node["bytes"].integer(),
          .header_bytes = node["header_bytes"].integer(),
          .header_sum = sum_of(node["header_sum"]),
          .block_sums = sums_of(node["block_sums"])};
}

}  // namespace sc::checkpoint
