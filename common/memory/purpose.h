// What a byte is for. No torch.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace sc {

enum class Purpose : std::uint8_t {
  parameters,     // what forward and backward read, in the compute dtype
  gradients,      // what backward writes
  master,         // fp32 parameters beside 16-bit ones
  momentum,       // Adam's first moment
  variance,       // Adam's second moment
  activations,    // kept from forward for backward
  workspace,      // reused by every block; dead between steps
  communication,  // buckets, gather buffers' copies, transport scratch
  stash,          // older versions of parameters
  host,           // pinned host memory of a GPU rank
  disk,           // bytes in files that stand for memory
};
inline constexpr int kPurposes = 11;
constexpr std::string_view name_of(Purpose purpose) {
  constexpr std::array<std::string_view, kPurposes> kNames = {
      "parameters", "gradients",     "master", "momentum", "variance", "activations",
      "workspace",  "communication", "stash",  "host",     "disk"};
  return kNames[static_cast<int>(purpose)];
}

}  // namespace sc
