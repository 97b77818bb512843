// What a checkpoint's files hold, by name. No torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/range.h"
#include "common/base/types.h"

namespace sc::checkpoint {

/// Values of one tensor: for one purpose, of one age.
struct Key {
  std::string tensor;        // the model's own name: "h.3.attn.c_attn.weight"
  std::string purpose;       // name_of(Purpose): "parameters", "master", "momentum", ...; letters and '_'
  std::int64_t version = 0;  // 0: the newest; 1: the one before it, ...
  auto operator<=>(const Key&) const = default;
};

/// The purpose of tensors that are not the model's, which a strategy needs to go on where it was. Nobody else
/// reads them, one file holds each of them whole, and the manifest does not list them.
inline constexpr const char* kInFlight = "in_flight";

/// Columns [begin, end) of a tensor that is seen as rows of `of` elements: what one tensor rank has of a
/// matrix whose input it has a part of. Rows of one element: the tensor as it is.
struct Columns {
  std::int64_t begin = 0, end = 1, of = 1;
  [[nodiscard]] std::int64_t size() const { return end - begin; }
  auto operator<=>(const Columns&) const = default;
};

/// A part of them, as one file holds it.
struct Entry {
  Key key;
  Range range;  // elements of the flattened tensor, or of those columns of it; not empty
  DType dtype = DType::f32;
  Columns columns = {};
  bool operator==(const Entry&) const = default;
};

/// "h.3.attn.c_attn.weight@momentum"; with a version other than 0 "...@parameters.v2".
std::string text_of(const Key& key);
/// The entry's name in its file: "h.3.attn.c_attn.weight@momentum[0:65536]"; of columns
/// "h.3.attn.c_proj.weight@momentum(64:128 of 128)[0:8192]".
std::string name_of(const Entry& entry);
/// Key, range and columns; nothing if `name` is not what name_of() writes.
std::optional<Entry> entry_of_name(std::string_view name, DType dtype);

}  // namespace sc::checkpoint
