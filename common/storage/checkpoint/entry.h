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

/// The purpose of tensors that are not the model's, which a strategy needs to go on where it was. Nobody else reads
/// them, one file holds each of them whole, and the manifest does not list them.
inline constexpr const char* kInFlight = "in_flight";

/// A part of them, as one file holds it.
struct Entry {
  Key key;
  Range range;  // elements of the flattened tensor; not empty
  DType dtype = DType::f32;
  bool operator==(const Entry&) const = default;
};

/// "h.3.attn.c_attn.weight@momentum"; with a version other than 0 "...@parameters.v2".
std::string text_of(const Key& key);
/// The entry's name in its file: "h.3.attn.c_attn.weight@momentum[0:65536]".
std::string name_of(const Entry& entry);
/// Key and range; nothing if `name` is not what name_of() writes.
std::optional<Entry> entry_of_name(std::string_view name, DType dtype);

}  // namespace sc::checkpoint
