#include "common/storage/safetensors_header.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "common/input/json_node.h"
#include "common/input/printable.h"

namespace sc {
namespace {

constexpr std::size_t kHeaderBegin = 8;  // byte of the file at which the JSON starts
// One tensor needs about 1 kB by the count of json_text.h, so this allows 30,000.
constexpr JsonLimits kLimits{.bytes = kMaxSafetensorsHeader};
constexpr const char* kMetadata = "__metadata__";
constexpr const char* kHeaderFix = "the file was written wrongly or is damaged: write or fetch it again";

struct StoredType {
  std::string_view name;
  std::int64_t bits;
  std::optional<DType> dtype;
};
constexpr std::array kStoredTypes = {
    StoredType{"F64", 64, DType::f64},      StoredType{"F32", 32, DType::f32},
    StoredType{"BF16", 16, DType::bf16},    StoredType{"F16", 16, DType::f16},
    StoredType{"I64", 64, DType::i64},      StoredType{"I32", 32, DType::i32},
    StoredType{"U8", 8, DType::u8},         StoredType{"BOOL", 8, std::nullopt},
    StoredType{"I8", 8, std::nullopt},      StoredType{"I16", 16, std::nullopt},
    StoredType{"U16", 16, std::nullopt},    StoredType{"U32", 32, std::nullopt},
    StoredType{"U64", 64, std::nullopt},    StoredType{"F8_E5M2", 8, std::nullopt},
    StoredType{"F8_E4M3", 8, std::nullopt}, StoredType{"F8_E8M0", 8, std::nullopt},
    StoredType{"F6_E2M3", 6, std::nullopt}, StoredType{"F6_E3M2", 6, std::nullopt},
    StoredType{"F4", 4, std::nullopt},      StoredType{"C64", 64, std::nullopt},
};

const StoredType* find_type(std::string_view name) {
  const auto* at = std::find_if(kStoredTypes.begin(), kStoredTypes.end(),
                                [&](const StoredType& type) { return type.name == name; });
  return at == kStoredTypes.end() ? nullptr : at;
}

void check_size(const SafeTensor& tensor, const StoredType& type, const JsonNode& node) {
  if (tensor.begin > tensor.end) node["data_offsets"].fail("end before they begin");
  const std::int64_t numel = shape_numel(tensor.shape);
  if (numel < 0 || numel > std::numeric_limits<std::int64_t>::max() / type.bits)
    node["shape"].fail("has more elements than 64 bits can count");
  if (numel * type.bits % 8 != 0)
    node["shape"].fail(
        fmt::format("has {} elements of {} bits, which are not whole bytes", numel, type.bits));
  if (const std::int64_t bytes = numel * type.bits / 8; bytes != tensor.end - tensor.begin)
    node.fail(fmt::format("takes {} bytes ({} [{}]), and its data_offsets [{}, {}] hold {}", bytes, type.name,
                          shown(fmt::format("{}", fmt::join(tensor.shape, ", "))), tensor.begin, tensor.end,
                          tensor.end - tensor.begin));
}

std::vector<std::int64_t> sizes_of(const JsonNode& node) {
  std::vector<std::int64_t> sizes;
  for (const JsonNode& size : node.elements())
    sizes.push_back(size.integer(0, std::numeric_limits<std::int64_t>::max()));
  return sizes;
}

SafeTensor read_tensor(const std::string& name, const JsonNode& node) {
  node.only({"dtype", "shape", "data_offsets"});
  const StoredType* type = find_type(node["dtype"].text());
  if (type == nullptr) node["dtype"].fail("is " + shown(node["dtype"].text()) + ", which the format lacks");
  const std::vector<std::int64_t> offsets = sizes_of(node["data_offsets"]);
  if (offsets.size() != 2) node["data_offsets"].fail("must be two offsets");
  SafeTensor tensor{.name = name,
                    .stored_dtype = std::string(type->name),
                    .dtype = type->dtype,
                    .shape = sizes_of(node["shape"]),
                    .begin = offsets[0],
                    .end = offsets[1]};
  check_size(tensor, *type, node);
  return tensor;
}

SafetensorsHeader read_header(const JsonNode& node) {
  SafetensorsHeader header;
  for (const std::string& name : node.keys()) {
    if (name == kMetadata)
      header.metadata = node[name].texts();
    else
      header.tensors.push_back(read_tensor(name, node[name]));
  }
  return header;
}

/// Checks that the tensors cover the data without overlap, hole or rest.
void check_cover(const SafetensorsHeader& header, std::int64_t data_bytes, const Path& path) {
  const auto fail = [&](const std::string& what) {
    throw InputError(ExitCode::data, path.string(), what, kHeaderFix);
  };
  std::int64_t covered = 0;
  std::string last;
  for (const SafeTensor& tensor : header.tensors) {
    if (tensor.end > data_bytes) {
      fail(fmt::format("tensor \"{}\": data_offsets [{}, {}] reach past the {} bytes of data",
                       shown(tensor.name), tensor.begin, tensor.end, data_bytes));
    }
    if (tensor.begin < covered) {
      fail(fmt::format("tensor \"{}\" begins at data byte {}, inside tensor \"{}\", which ends at {}",
                       shown(tensor.name), tensor.begin, shown(last), covered));
    }
    if (tensor.begin > covered) {
      fail(fmt::format("data bytes {} to {}, before tensor \"{}\", belong to no tensor", covered,
                       tensor.begin, shown(tensor.name)));
    }
    covered = tensor.end;
    last = tensor.name;
  }
  if (covered < data_bytes) {
    fail(fmt::format("the last {} bytes of the file belong to no tensor", data_bytes - covered));
  }
}

}  // namespace

std::int64_t shape_numel(const std::vector<std::int64_t>& shape) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  std::int64_t product = 1;
  for (const std::int64_t size : shape) {
    if (__builtin_mul_overflow(product, size, &product)) return -1;
  }
  return product;
}

SafetensorsHeader parse_safetensors_header(std::string_view json, std::int64_t data_bytes, const Path& path) {
  if (json.empty() || json.front() != '{') {
    throw InputError(ExitCode::data, path.string(), "the header at byte 8 does not start with '{'",
                     kHeaderFix);
  }
  SafetensorsHeader header =
      of_json<InputError>(json, kLimits, path.string(), ExitCode::data, kHeaderFix, read_header);
  std::sort(header.tensors.begin(), header.tensors.end(), [](const SafeTensor& a, const SafeTensor& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  check_cover(header, data_bytes, path);
  return header;
}

std::string safetensors_head(const std::vector<SafeTensorSpec>& specs,
                             const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json root = nlohmann::ordered_json::object();
  if (!metadata.empty()) root[kMetadata] = metadata;
  std::int64_t begin = 0;
  for (const SafeTensorSpec& spec : specs) {
    const std::int64_t numel = shape_numel(spec.shape);
    const bool negative = std::any_of(spec.shape.begin(), spec.shape.end(), [](auto n) { return n < 0; });
    if (negative || numel < 0)
      throw std::logic_error(fmt::format("safetensors: bad shape of \"{}\"", spec.name));
    if (spec.name == kMetadata || root.contains(spec.name)) {
      throw std::logic_error(fmt::format("safetensors: the name \"{}\" is taken", spec.name));
    }
    const std::int64_t end = begin + numel * size_of(spec.dtype);
    const auto* type =
        std::find_if(kStoredTypes.begin(), kStoredTypes.end(),
                     [&](const StoredType& candidate) { return candidate.dtype == spec.dtype; });
    root[spec.name] = {{"dtype", type->name}, {"shape", spec.shape}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = root.dump();
  text.resize(static_cast<std::size_t>(round_up(static_cast<std::int64_t>(text.size()), 8)), ' ');
  const auto length = static_cast<std::uint64_t>(text.size());
  std::string head(kHeaderBegin, '\0');
  std::memcpy(head.data(), &length, sizeof(length));
  return head + text;
}

}  // namespace sc
