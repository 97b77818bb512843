// What bytes are for (purpose), and where they lie (place). No torch.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "common/base/types.h"

namespace sc {

enum class Purpose : std::uint8_t {
  parameters,     // read by forward and backward, in the compute dtype
  gradients,      // written by backward
  master,         // fp32 copy of 16-bit parameters
  momentum,       // Adam's first moment
  variance,       // Adam's second moment
  activations,    // saved by forward for backward
  workspace,      // reused by every block; dead between steps
  communication,  // buckets, gather buffers' copies, transport scratch
  stash,          // older versions of parameters
  checkpoint,     // the copy that a checkpoint is written from
};
inline constexpr int kPurposes = 10;
constexpr std::string_view name_of(Purpose purpose) {
  constexpr std::array<std::string_view, kPurposes> kNames = {
      "parameters",  "gradients", "master",        "momentum", "variance",
      "activations", "workspace", "communication", "stash",    "checkpoint"};
  return kNames[static_cast<int>(purpose)];
}
/// As tables say it.
constexpr std::string_view in_words(Purpose purpose) {
  return purpose == Purpose::stash ? "older weights" : name_of(purpose);
}

enum class Place : std::uint8_t {
  device,  // memory of the computing device: a GPU's, or the rank's own on the CPU
  pinned,  // host memory that a GPU copies to and from by itself; on the CPU the same as `host`
  host,    // other host memory
  disk,    // bytes in files that stand for memory
};
inline constexpr int kPlaces = 4;
constexpr std::string_view name_of(Place place) {
  constexpr std::array<std::string_view, kPlaces> kNames = {"device", "pinned", "host", "disk"};
  return kNames[static_cast<int>(place)];
}

/// One value for each purpose at each place.
template <class T>
class ByPlace {
 public:
  [[nodiscard]] T& at(Purpose purpose, Place place = Place::device) {
    return values_[static_cast<std::size_t>(place)][static_cast<std::size_t>(purpose)];
  }
  [[nodiscard]] const T& at(Purpose purpose, Place place = Place::device) const {
    return values_[static_cast<std::size_t>(place)][static_cast<std::size_t>(purpose)];
  }
  bool operator==(const ByPlace&) const = default;

 private:
  std::array<std::array<T, kPurposes>, kPlaces> values_{};
};

/// What plan and ledger call a buffer, or several equal ones.
struct BufferName {
  Purpose purpose{};
  Place place{};
  std::string name;
  auto operator<=>(const BufferName&) const = default;
};
using ByName = std::map<BufferName, Bytes>;

/// Calls f(purpose) for each purpose, or f(place) for each place, in the order of the printed tables.
template <class F>
void for_each_purpose(F&& f) {
  for (int p = 0; p < kPurposes; ++p) f(static_cast<Purpose>(p));
}
template <class F>
void for_each_place(F&& f) {
  for (int p = 0; p < kPlaces; ++p) f(static_cast<Place>(p));
}

}  // namespace sc
