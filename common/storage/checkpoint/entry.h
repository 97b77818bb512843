// The contents of a checkpoint's files, by name. No torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/range.h"
#include "common/base/types.h"

namespace sc::checkpoint {

/// Identifies the values of one tensor for one purpose and version.
struct Key {
  std::string tensor;        // the model's own name: "h.3.attn.c_attn.weight"
  std::string purpose;       // name_of(Purpose): "parameters", "master", "momentum", ...; letters and '_'
  std::int64_t version = 0;  // 0: the newest; 1: the one before it, ...
  auto operator<=>(const Key&) const = default;
};

/// The purpose of tensors that are not the model's but that a strategy needs to continue. Only that strategy
/// reads them; one file holds each of them whole, and the manifest does not list them.
inline constexpr const char* kInFlight = "in_flight";

/// Columns [begin, end) of a tensor viewed as rows of `of` elements: a tensor rank's part of a matrix that is
/// cut by columns. With rows of one element it is the tensor as it is.
struct Columns {
  std::int64_t begin = 0, end = 1, of = 1;
  [[nodiscard]] std::int64_t size() const { return end - begin; }
  auto operator<=>(const Columns&) const = default;
};

/// The part of a key's values that one file holds.
struct Entry {
  Key key;
  Range range;  // elements of the flattened tensor, or of those columns of it; not empty
  DType dtype = DType::f32;
  Columns columns = {};
  bool operator==(const Entry&) const = default;
};

/// A key as text, "h.3.attn.c_attn.weight@momentum"; with a version other than 0 "...@parameters.v2".
std::string text_of(const Key& key);
/// What an entry is called in its file: "h.3.attn.c_attn.weight@momentum[0:65536]", or for columns
/// "h.3.attn.c_proj.weight@momentum(64:128 of 128)[0:8192]".
std::string name_of(const Entry& entry);
/// Parses name_of()'s result into key, range and columns; nullopt for any other text.
std::optional<Entry> entry_of_name(std::string_view name, DType dtype);

}  // namespace sc::checkpoint
