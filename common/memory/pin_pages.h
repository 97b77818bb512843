// Pins host memory, so that a GPU copies to and from it by itself. Absent from a build without GPU code.
#pragma once

#include <cstddef>

namespace sc {

/// Pins pages until unpin_pages().
///   Errors  DeviceError with CUDA's reason.
void pin_pages(void* memory, std::size_t bytes);
void unpin_pages(void* memory) noexcept;

}  // namespace sc
