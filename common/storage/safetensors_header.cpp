#include "common/storage/safetensors_header.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "common/input/counting_iterator.h"
#include "common/input/json_text.h"
#include "common/input/printable.h"

namespace sc {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kHeaderBegin = 8;  // byte of the file where the JSON starts
// A tensor of it takes about 1 kB as json_text.h counts: 30,000 of them.
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

/// Receives the parser's events and keeps what the format allows at each place; anything else throws.
class HeaderSax : public nlohmann::json_sax<Json> {
 public:
  HeaderSax(SafetensorsHeader& header, const Path& path, const std::size_t& taken)
      : header_(header), path_(path), taken_(taken) {}

  bool null() override { return unexpected("null"); }
  bool boolean(bool value) override { return unexpected(value ? "true" : "false"); }
  bool number_integer(std::int64_t value) override { return unexpected(std::to_string(value)); }
  bool number_float(double /*value*/, const std::string& text) override { return unexpected(shown(text)); }
  bool binary(binary_t& /*value*/) override { return unexpected("binary data"); }

  bool number_unsigned(std::uint64_t value) override {
    if (place_ != Place::shape && place_ != Place::offsets) return unexpected(std::to_string(value));
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return unexpected(std::to_string(value));
    }
    (place_ == Place::shape ? tensor_.shape : offsets_).push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool string(std::string& value) override {
    if (place_ == Place::metadata_value) {
      header_.metadata[field_] = value;
      place_ = Place::metadata;
      return true;
    }
    if (place_ != Place::field_value || field_ != "dtype") return unexpected("a string");
    const StoredType* type = find_type(value);
    if (type == nullptr) fail(fmt::format("{}: unknown dtype \"{}\"", who(), shown(value)));
    tensor_.stored_dtype = value;
    tensor_.dtype = type->dtype;
    place_ = Place::fields;
    return true;
  }

  bool start_object(std::size_t /*count*/) override {
    if (place_ == Place::start) {
      place_ = Place::names;
    } else if (place_ == Place::entry) {
      place_ = in_metadata() ? Place::metadata : Place::fields;
      fields_.clear();
    } else {
      return unexpected("an object");
    }
    return true;
  }

  bool start_array(std::size_t /*count*/) override {
    if (place_ != Place::field_value || field_ == "dtype") return unexpected("an array");
    place_ = field_ == "shape" ? Place::shape : Place::offsets;
    return true;
  }

  bool end_array() override {
    if (place_ == Place::offsets && offsets_.size() != 2) {
      fail(fmt::format("{}: data_offsets has {} numbers instead of 2", who(), offsets_.size()));
    }
    place_ = Place::fields;
    return true;
  }

  bool key(std::string& value) override {
    if (place_ == Place::names) {
      if (!names_.insert(value).second) fail(fmt::format("the name \"{}\" occurs twice", shown(value)));
      tensor_ = SafeTensor{};
      tensor_.name = value;
      offsets_.clear();
      place_ = Place::entry;
      return true;
    }
    if (!fields_.insert(value).second) fail(fmt::format("{}: \"{}\" occurs twice", who(), shown(value)));
    field_ = value;
    if (place_ == Place::metadata) {
      place_ = Place::metadata_value;
      return true;
    }
    if (value != "dtype" && value != "shape" && value != "data_offsets") {
      fail(fmt::format("{}: unknown field \"{}\"", who(), shown(value)));
    }
    place_ = Place::field_value;
    return true;
  }

  bool end_object() override {
    if (place_ == Place::names) {
      place_ = Place::end;
      return true;
    }
    if (place_ == Place::fields) keep_tensor();
    place_ = Place::names;
    return true;
  }

  bool parse_error(std::size_t /*position*/, const std::string& last_token,
                   const Json::exception& /*error*/) override {
    fail(last_token.empty() ? std::string("not valid JSON")
                            : fmt::format("not valid JSON near '{}'", tail_of(last_token)));
  }

 private:
  /// What the parser is about to see.
  enum class Place {
    start,
    names,
    entry,
    fields,
    field_value,
    shape,
    offsets,
    metadata,
    metadata_value,
    end
  };

  [[nodiscard]] bool in_metadata() const { return tensor_.name == kMetadata; }
  [[nodiscard]] std::string who() const {
    return in_metadata() ? kMetadata : fmt::format("tensor \"{}\"", shown(tensor_.name));
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw InputError(ExitCode::data, path_.string(),
                     fmt::format("header, byte {}: {}", kHeaderBegin + taken_, what), kHeaderFix);
  }

  /// The last few characters of what the parser could not read.
  static std::string tail_of(const std::string& token) {
    constexpr std::size_t kLongest = 24;
    return shown(token.size() > kLongest ? std::string_view(token).substr(token.size() - kLongest) : token);
  }

  [[noreturn]] bool unexpected(const std::string& found) const {
    std::string wanted = "nothing more";
    switch (place_) {
      case Place::start:
        wanted = "the header must be an object";
        break;
      case Place::entry:
        wanted = who() + " must be an object";
        break;
      case Place::field_value:
        wanted = who() + ": " + field_ + (field_ == "dtype" ? " must be a string" : " must be an array");
        break;
      case Place::shape:
        wanted = who() + ": shape must hold integers from 0 to 2^63 - 1";
        break;
      case Place::offsets:
        wanted = who() + ": data_offsets must hold integers from 0 to 2^63 - 1";
        break;
      case Place::metadata_value:
        wanted = fmt::format("{}: \"{}\" must be a string", kMetadata, shown(field_));
        break;
      default:
        break;
    }
    fail(wanted + ", not " + found);
  }

  void keep_tensor() {
    for (const char* field : {"dtype", "shape", "data_offsets"}) {
      if (fields_.count(field) == 0) fail(fmt::format("{}: {} is missing", who(), field));
    }
    tensor_.begin = offsets_[0];
    tensor_.end = offsets_[1];
    check_size();
    header_.tensors.push_back(tensor_);
  }

  [[nodiscard]] std::string shape_text() const {
    return shown(fmt::format("{}", fmt::join(tensor_.shape, ", ")));
  }

  void check_size() const {
    if (tensor_.begin > tensor_.end) {
      fail(fmt::format("{}: data_offsets [{}, {}] end before they begin", who(), tensor_.begin, tensor_.end));
    }
    const std::int64_t numel = shape_numel(tensor_.shape);
    const std::int64_t bits = find_type(tensor_.stored_dtype)->bits;
    if (numel < 0 || numel > std::numeric_limits<std::int64_t>::max() / bits) {
      fail(fmt::format("{}: shape [{}] has more elements than 64 bits can count", who(), shape_text()));
    }
    if (numel * bits % 8 != 0) {
      fail(fmt::format("{}: {} elements of {} bits are not whole bytes", who(), numel, bits));
    }
    if (numel * bits / 8 != tensor_.end - tensor_.begin) {
      fail(fmt::format("{}: {} [{}] takes {} bytes, data_offsets [{}, {}] hold {}", who(),
                       tensor_.stored_dtype, shape_text(), numel * bits / 8, tensor_.begin, tensor_.end,
                       tensor_.end - tensor_.begin));
    }
  }

  SafetensorsHeader& header_;
  const Path& path_;
  const std::size_t& taken_;
  Place place_ = Place::start;
  SafeTensor tensor_;
  std::vector<std::int64_t> offsets_;
  std::string field_;
  std::set<std::string> names_, fields_;
};

/// The tensors must cover the data without overlap, hole or rest.
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
  try {
    require_bounded(json, kLimits);
  } catch (const JsonError& error) {
    throw InputError(ExitCode::data, path.string(),
                     fmt::format("header, byte {}: {}", kHeaderBegin + error.byte(), error.what()),
                     kHeaderFix);
  }
  SafetensorsHeader header;
  std::size_t taken = 0;
  HeaderSax sax(header, path, taken);
  Json::sax_parse(begin_of(json, &taken), end_of(json, &taken), &sax);
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
